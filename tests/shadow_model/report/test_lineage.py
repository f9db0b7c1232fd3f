"""The graph tells from receipts alone which stage read which."""

from typing import Any
from xml.etree import ElementTree

from shadow_model.receipt import FileRecord, Receipt
from shadow_model.report.lineage import PAGE, draw_across, draw_down, lineage_graph


def receipt(stage: str, *reads: Receipt, number: int = 0) -> Receipt:
    """Return the receipt of a stage that wrote one file."""
    output = FileRecord(name="a", sha256=f"{stage}{number}", bytes=3)
    inputs = tuple(read.as_input() for read in reads)
    return Receipt(stage=stage, key=f"{stage}{number}", inputs=inputs, outputs=(output,))


def test_chain_is_drawn_in_columns(chain: Any) -> None:
    graph = lineage_graph(chain.inputs().receipts)
    columns = {node.name: node.column for node in graph.nodes}
    assert columns == {
        "sources": 0,
        "table": 1,
        "remap": 2,
        "pack": 3,
        "proof": 4,
        "flat": 4,
        "export": 5,
        "smoke": 5,
        "speed": 5,
        PAGE: 6,
    }
    edges = set(graph.edges)
    assert {("sources", "table"), ("sources", "remap"), ("table", "proof")} <= edges
    read_last = {name for name, reader in edges if reader == PAGE}
    assert read_last == {"export", "flat", "smoke", "speed"}


def test_nodes_carry_the_digest_of_their_outputs(chain: Any) -> None:
    graph = lineage_graph(chain.inputs().receipts)
    table = next(node for node in graph.nodes if node.name == "table")
    assert table.digest == chain.receipts["table"].as_input().sha256
    assert table.digest[:10] in draw_across(graph)
    assert table.digest in draw_across(graph)  # in full for those who point at it


def test_mapped_stage_is_one_node() -> None:
    sources = receipt("sources")
    parts = [receipt("remap", sources, number=i) for i in range(5)]
    graph = lineage_graph([sources, *parts, receipt("pack", *parts)])
    assert [node.name for node in graph.nodes] == ["sources", "remap", "pack", PAGE]
    assert graph.edges == (("sources", "remap"), ("remap", "pack"), ("pack", PAGE))
    assert "5 tasks" in draw_down(graph)


def test_inputs_without_a_receipt_are_left_out() -> None:
    graph = lineage_graph([receipt("flat", receipt("table"))])
    assert graph.edges == (("flat", PAGE),)


def test_no_receipt_is_the_page_alone() -> None:
    graph = lineage_graph([])
    assert [node.name for node in graph.nodes] == [PAGE]
    ElementTree.fromstring(draw_across(graph))


def test_pictures_are_svg_with_every_stage_and_edge(chain: Any) -> None:
    graph = lineage_graph(chain.inputs().receipts)
    for svg in (draw_across(graph), draw_down(graph)):
        root = ElementTree.fromstring(svg)
        names = [t.text for t in root.iter("text") if t.get("class") == "name"]
        assert names == [node.name for node in graph.nodes]
        assert len(root.findall("path")) == len(graph.edges)


def test_boxes_lie_inside_the_picture_and_apart(chain: Any) -> None:
    root = ElementTree.fromstring(draw_across(lineage_graph(chain.inputs().receipts)))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    boxes = [
        tuple(float(rect.attrib[n]) for n in ("x", "y", "width", "height"))
        for rect in root.iter("rect")
    ]
    assert all(x >= 0 and y >= 0 and x + w <= width and y + h <= height for x, y, w, h in boxes)
    for index, (x, y, w, h) in enumerate(boxes):
        for a, b, c, d in boxes[index + 1 :]:
            assert x + w <= a or a + c <= x or y + h <= b or b + d <= y
