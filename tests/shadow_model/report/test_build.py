"""The page is one file that needs nothing else, and says what it must."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from shadow_model.errors import DataError
from shadow_model.report.build import HTML, JSON, build_report
from shadow_model.report.config import ReportConfig
from shadow_model.report.inputs import ReportInputs

VOID = {"meta", "link", "img", "br"}
LIBRARY = "https://github.com/leeoniya/uPlot"
NAMESPACES = {LIBRARY, "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


class Checker(HTMLParser):
    """Collects ids and references, and sees whether every element is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.handle_startendtag(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids += [found["id"]] if "id" in found else []
        self.fetched += [v for n, v in found.items() if n == "src" or (tag, n) == ("link", "href")]
        self.links += [found["href"]] if tag == "a" else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def check(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


@pytest.fixture(scope="module")
def built(chain: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    build_report(out, chain.inputs(), ReportConfig())
    return out


@pytest.fixture(scope="module")
def page(built: Path) -> str:
    return (built / HTML).read_text(encoding="utf-8")


def test_page_needs_no_other_file(page: str) -> None:
    checker = check(page)
    assert all(address.startswith("data:") for address in checker.fetched)
    assert set(re.findall(r"https?://[^\s\"'<>)]+", page)) <= NAMESPACES
    assert "@import" not in page


def test_ids_are_unique_and_links_lead_somewhere(page: str) -> None:
    checker = check(page)
    assert len(checker.ids) == len(set(checker.ids))
    assert {link.removeprefix("#") for link in checker.links} <= set(checker.ids)
    assert checker.links


def test_every_figure_and_table_has_its_number_in_order(page: str) -> None:
    for name, least in (("Figure", 10), ("Table", 10)):
        numbers = [int(n) for n in re.findall(rf"<b>{name} (\d+)\.</b>", page)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) >= least
    assert page.count("<figure") == page.count("<figcaption") == page.count("</figcaption>")


def test_page_says_what_the_twin_says(built: Path, page: str) -> None:
    twin = json.loads((built / JSON).read_text())
    said = " ".join("".join(check(page).text).split())
    assert twin["verdict"]["headline"] in said
    assert all(caveat in said for caveat in twin["verdict"]["caveats"])
    assert twin["title"] in said
    for stage in twin["stages"]:
        assert stage["sha256"][:12] in said
    for row in twin["held_out"]:
        assert f"{row['proof']['end']['loss']:.3f}" in said
    assert "6.500 to 6.530" in said


def test_light_dark_and_print_are_styled(page: str) -> None:
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    used = set(re.findall(r"var\((--[a-z]+)\)", page))
    assert used <= set(re.findall(r"(--[a-z]+):", page))


def test_same_inputs_give_the_same_bytes_and_progress_is_told(
    chain: Any, built: Path, tmp_path: Path
) -> None:
    told: list[tuple[float, float]] = []
    counts = build_report(
        tmp_path, chain.inputs(), ReportConfig(), lambda done, total, _: told.append((done, total))
    )
    for name in (HTML, JSON):
        assert (tmp_path / name).read_bytes() == (built / name).read_bytes()
    assert (counts["outcome"], counts["pictures"]) == ("better", 3)
    assert counts["page_bytes"] == (tmp_path / HTML).stat().st_size
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]


STAGES = ("sources", "table", "remap", "pack", "smoke", "speed", "proof", "flat", "export")


@pytest.mark.parametrize(
    "without", [("sources", "speed"), ("table", "smoke"), ("pack",), ("proof",), ("flat",), STAGES]
)
def test_page_without_a_stage_leaves_its_section_out_and_says_so(
    chain: Any, tmp_path: Path, without: tuple[str, ...]
) -> None:
    inputs = chain.inputs(without)
    build_report(tmp_path, inputs, ReportConfig())
    page = (tmp_path / HTML).read_text(encoding="utf-8")
    check(page)
    twin = json.loads((tmp_path / JSON).read_text())
    for name, reason in twin["missing"].items():
        shown = name not in {"proof", "flat"}  # an arm's absence is told by the verdict
        assert reason in page or not shown
    assert ("No receipt was given" in page) == (without == STAGES)


def test_names_from_the_data_cannot_become_markup(chain: Any, tmp_path: Path) -> None:
    inputs = chain.inputs()
    bad = inputs.receipts[0].replace(
        host="<script>x</script>", counts={"<b>n</b>": "<i>", "t": {"<u>": {"a": "<em>"}}}
    )
    title = "<script>alert(1)</script>"
    risky = ReportInputs.of(chain.store, [bad, *inputs.receipts[1:]])
    build_report(tmp_path, risky, ReportConfig(title=title))
    page = (tmp_path / HTML).read_text(encoding="utf-8")
    check(page)
    assert not any(
        tag in page for tag in ("<script>x", "<script>alert", "<i>", "<u>", "<em>", "<b>n")
    )
    assert "&lt;script&gt;alert(1)" in page


def test_garbled_metrics_leave_no_page(chain: Any, tmp_path: Path) -> None:
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "metrics.jsonl").write_text('{"event": "evaluate", "step": 1}\n')
    inputs = ReportInputs(chain.inputs().receipts, flat=tmp_path / "flat")
    with pytest.raises(DataError, match=r"metrics\.jsonl:1"):
        build_report(tmp_path, inputs, ReportConfig())
    assert not (tmp_path / HTML).exists()


def test_samples_stand_beside_the_data_and_are_escaped(page: str, built: Path) -> None:
    text = " ".join(check(page).text)
    for part in ("The <b>", "cat sat.", "dog ran.", "bits per weight", "1.60"):
        assert part in text, part
    assert json.loads((built / JSON).read_text())["export"]["tokens_per_s"]["int8"] == 52.5


def test_without_an_export_the_page_says_so(chain: Any, tmp_path: Path) -> None:
    build_report(tmp_path, chain.inputs(without=("export",)), ReportConfig())
    assert "was not exported for this page" in (tmp_path / HTML).read_text(encoding="utf-8")
