"""Figures follow the page's colours, repeat byte for byte and keep their ids apart."""

import re
from xml.etree import ElementTree

from shadow_model.report.drawing import PROOF, panel, to_svg


def draw(name: str) -> str:
    with panel(4, 3) as axes:
        axes.plot([0, 1], [1, 0], color=PROOF)
        axes.set_title("a & b")
        return to_svg(axes, name, "A line")


def test_figure_is_one_parsable_element_with_a_label() -> None:
    root = ElementTree.fromstring(draw("one"))
    assert root.tag.endswith("svg")
    assert root.attrib["aria-label"] == "A line"
    assert "width" not in root.attrib
    assert "viewBox" in root.attrib


def test_colours_are_the_pages_variables() -> None:
    svg = draw("one")
    assert "var(--proof)" in svg
    assert "#0a0a0" not in svg
    assert "a &amp; b" in svg  # text, no outlines


def test_same_figure_has_the_same_bytes() -> None:
    assert draw("one") == draw("one")


def test_ids_of_two_figures_differ() -> None:
    found = [set(re.findall(r'id="([^"]+)"', draw(name))) for name in ("one", "two")]
    assert found[0]
    assert not found[0] & found[1]


def test_references_inside_a_figure_resolve() -> None:
    svg = draw("one")
    ids = set(re.findall(r'id="([^"]+)"', svg))
    assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', svg)) <= ids


def test_nothing_is_fetched() -> None:
    addresses = set(re.findall(r'"(https?://[^"]+)"', draw("one")))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
