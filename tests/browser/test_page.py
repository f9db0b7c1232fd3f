"""The report page in a browser: nothing overflows, curves answer, tables sort, offline."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from shadow_model.report.build import HTML, build_report
from shadow_model.report.compare import compare_runs
from shadow_model.report.config import ReportConfig
from shadow_model.store import Store
from tests.shadow_model.report.conftest import build_chain

WIDTHS = (1200, 390)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("page")
    build_report(folder, build_chain(folder / "store").inputs(), ReportConfig())
    return (folder / HTML).as_uri()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """Open the page without a network; what it says on the console is a fault."""
    context = browser.new_context(offline=True)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(address)
    yield page
    context.close()
    assert said == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_window(page: Page, width: int, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cut = """() => [...document.querySelectorAll("td, th")].filter(
        (cell) => cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.textContent)"""
    assert page.evaluate(cut) == []


def test_curves_tell_the_values_under_the_pointer(page: Page) -> None:
    chart = page.locator("figure[data-curve=total]")
    area = chart.locator(".u-over")
    area.scroll_into_view_if_needed()
    area.hover(position={"x": 120, "y": 60})
    told = chart.locator(".u-legend .u-value").all_inner_texts()
    assert len(told) >= 5
    assert any(value not in {"–", "--"} for value in told[1:])


def test_kinds_and_the_axis_can_be_chosen(page: Page) -> None:
    assert page.locator("figure[data-curve=picture] .uplot").count() == 1
    page.get_by_label("picture", exact=True).uncheck()
    assert not page.locator("figure[data-curve=picture]").is_visible()
    page.get_by_label("training FLOPs").check()
    label = page.locator("figure[data-curve=total] .u-legend .u-label").first
    assert label.inner_text() == "training FLOPs"


def test_an_arm_that_was_put_away_stays_away_on_another_axis(page: Page) -> None:
    chart = page.locator("figure[data-curve=total]")
    chart.get_by_text("flat control, training").click()
    page.get_by_label("hours").check()
    assert chart.locator(".u-series.u-off .u-label").inner_text() == "flat control, training"


def test_tables_sort_by_their_numbers(page: Page) -> None:
    table = page.locator("#lineage table").first
    head = table.get_by_role("columnheader", name="size")
    place = table.locator("thead th").all_inner_texts().index("size")

    def order() -> list[str]:
        return table.locator(f"tbody tr > :nth-child({place + 1})").all_inner_texts()

    def in_bytes(text: str) -> float:
        number, unit = text.split()
        return float(number) * 1024 ** ["B", "KiB", "MiB", "GiB"].index(unit)

    head.click()
    falling = [in_bytes(text) for text in order()]
    assert falling == sorted(falling, reverse=True)
    assert len(set(falling)) > 2
    head.click()
    assert [in_bytes(text) for text in order()] == sorted(falling)


def test_print_shows_the_drawn_curves(page: Page) -> None:
    page.emulate_media(media="print")
    assert page.locator("figure[data-curve=total] svg").is_visible()
    assert not page.locator("figure[data-curve=total] .live").is_visible()


def test_without_scripts_the_curves_are_there(browser: Browser, address: str) -> None:
    context = browser.new_context(java_script_enabled=False, offline=True)
    still = context.new_page()
    still.goto(address)
    assert still.locator("figure[data-curve=total] svg").is_visible()
    assert not still.locator(".controls").is_visible()
    context.close()


def test_the_page_of_several_runs_draws_all_of_them(browser: Browser, tmp_path: Path) -> None:
    inputs = build_chain(tmp_path / "store").inputs()
    (tmp_path / "one").mkdir()
    build_report(tmp_path / "one", inputs, ReportConfig())
    runs = [str(tmp_path / "one"), str(tmp_path / "one" / "report.json")]
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto(compare_runs(Store(tmp_path / "store"), runs, tmp_path / "two").as_uri())
    labels = page.locator("figure[data-curve=total] .u-legend .u-label").all_inner_texts()
    assert len(labels) == 1 + 2 * 4
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
