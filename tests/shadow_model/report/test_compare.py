"""Runs are found by what a person knows of them, and set side by side."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shadow_model.errors import ConfigError, DataError
from shadow_model.receipt import Identity, Receipt
from shadow_model.report.build import build_report
from shadow_model.report.compare import compare_runs, find_run
from shadow_model.report.config import ReportConfig
from shadow_model.report.inputs import ReportInputs
from shadow_model.run_record import RunLog, StageUse
from shadow_model.store import Store


class Two(NamedTuple):
    """A store with two runs, `aa11` and `ab22`, of one name."""

    store: Store
    reports: list[Receipt]


@pytest.fixture(scope="module")
def two(chain: Any, tmp_path_factory: pytest.TempPathFactory) -> Two:
    store, reports = Store(tmp_path_factory.mktemp("store")), []
    inputs: ReportInputs = chain.inputs()
    for ident, price, seed in (("aa11", None, 0), ("ab22", 2.5, 1)):
        own = [
            r.replace(config={"seed": seed}) if r.stage == "proof" else r for r in inputs.receipts
        ]
        with store.build(Identity.of("report", [], {"price": price}, [])) as build:
            changed = ReportInputs(**{**vars(inputs), "receipts": own})
            build_report(build.folder, changed, ReportConfig(price_per_hour=price))
        assert build.receipt is not None
        use = StageUse(label="8 report", stage="report", key=build.receipt.key, state="built")
        RunLog(store, ident, "proof tiny").note([use])
        reports.append(build.receipt)
    return Two(store, reports)


def test_the_page_holds_both_runs(two: Two, tmp_path: Path) -> None:
    page = compare_runs(two.store, ["aa11", "ab2"], tmp_path / "out")
    content = json.loads(page.with_name("compare.json").read_text())
    assert [run["label"] for run in content["runs"]] == ["proof tiny aa11", "proof tiny ab22"]
    total = content["held_out"][-1]
    assert total["kind"] == "total"
    assert len(total["losses"]) == 4
    assert content["differences"] == [
        {"run": "proof tiny ab22", "stage": "proof", "change": "seed: 0 -> 1"}
    ]
    money = [cost["money"] for cost in content["costs"]]
    assert money[:2] == [None, None]
    assert money[2] == f"{content['costs'][2]['elapsed_s'] / 3600 * 2.5:,.2f} USD"
    text = page.read_text(encoding="utf-8")
    assert "proof tiny ab22, looped core, held out" in text
    assert "seed: 0 -&gt; 1" in text


def test_a_run_is_found_by_its_reports_folder_too(two: Two) -> None:
    folder = two.store.folder(two.reports[0])
    assert find_run(two.store, str(folder)).content == find_run(two.store, "aa11").content


def test_equal_runs_are_told_apart(two: Two, tmp_path: Path) -> None:
    page = compare_runs(two.store, ["aa11", "aa11"], tmp_path)
    labels = [
        run["label"] for run in json.loads(page.with_name("compare.json").read_text())["runs"]
    ]
    assert labels == ["proof tiny aa11 (1)", "proof tiny aa11 (2)"]


@pytest.mark.parametrize(
    ("name", "found"), [("a", "of 2: a"), ("zz", "of 0: a"), ("proof tiny", "of 2")]
)
def test_a_name_of_no_run_or_of_several_tells_those_there_are(
    two: Two, name: str, found: str
) -> None:
    with pytest.raises(ConfigError, match=found) as caught:
        find_run(two.store, name)
    assert "ab22 proof tiny" in str(caught.value)


@pytest.mark.parametrize("content", ["[]", "{", '{"version": 99}'])
def test_what_is_no_report_is_refused(two: Two, tmp_path: Path, content: str) -> None:
    (tmp_path / "report.json").write_text(content)
    with pytest.raises(DataError, match=r"report\.json"):
        find_run(two.store, str(tmp_path))
