"""The stages that this page stands on, as a graph: which stage read which.

Stages of one name (a mapped stage) are one box. Boxes stand in the column of their longest way
from the raw sources; a stage that reads nothing (smoke, speed) stands beside the training arms.
The picture is hand-laid SVG, drawn along the page's width or, for a narrow screen, down it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from shadow_model.digest import sha256_text
from shadow_model.receipt import Receipt
from shadow_model.report import words
from shadow_model.schema import canonical_json

PAGE = "report"
_SHOWN_DIGITS = 10


@dataclass(frozen=True)
class Node:
    """One stage.

    Attributes:
        column: Place along the chain, from 0.
        digest: Of the stage's outputs, in hex; empty for the page itself.
    """

    name: str
    lines: tuple[str, ...]
    column: int
    digest: str


@dataclass(frozen=True)
class Graph:
    """Nodes in order of the chain, and (reader's source, reader) pairs."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str], ...]


def lineage_graph(receipts: Sequence[Receipt]) -> Graph:
    """Build the graph of stages from receipts alone; the page is its last node."""
    groups: dict[str, list[Receipt]] = {}
    for receipt in receipts:
        groups.setdefault(receipt.stage, []).append(receipt)
    reads = {n: _sources(group, groups.keys() - {n}) for n, group in groups.items()}
    columns = _columns(reads)
    read = {source for sources in reads.values() for source in sources}
    ends = [name for name in groups if name not in read and name != PAGE]
    nodes = [_node(n, group, columns[n]) for n, group in groups.items() if n != PAGE]
    # Stable: the stages of a column stay in the receipts' order, those that read nothing last.
    nodes.sort(key=lambda node: (node.column, not reads[node.name]))
    page = Node(PAGE, ("this page",), max((n.column for n in nodes), default=-1) + 1, "")
    edges = [(s, name) for name in groups if name != PAGE for s in sorted(reads[name])]
    return Graph((*nodes, page), (*edges, *((name, PAGE) for name in ends)))


def _sources(group: Sequence[Receipt], known: set[str]) -> set[str]:
    return {record.stage for receipt in group for record in receipt.inputs} & known


def _columns(reads: dict[str, set[str]]) -> dict[str, int]:
    columns: dict[str, int] = {}

    def column(name: str) -> int:
        if name not in columns:
            columns[name] = 0  # a cycle cannot come from receipts, yet must not hang the page
            columns[name] = max((column(source) + 1 for source in reads[name]), default=0)
        return columns[name]

    last = max((column(name) for name in reads if name != PAGE), default=0)
    read = {source for sources in reads.values() for source in sources}
    alone = {name for name in reads if not reads[name] and name not in read}
    return {name: last if name in alone else place for name, place in columns.items()}


def _node(name: str, group: Sequence[Receipt], column: int) -> Node:
    digests = sorted(receipt.as_input().sha256 for receipt in group)
    digest = digests[0] if len(digests) == 1 else sha256_text(canonical_json(digests))
    num_bytes = sum(record.bytes for receipt in group for record in receipt.outputs)
    times = f"{len(group)} tasks · " if len(group) > 1 else ""
    cost = f"{times}{words.duration(sum(receipt.seconds for receipt in group))}"
    return Node(name, (cost, words.size(num_bytes), digest[:_SHOWN_DIGITS]), column, digest)


@dataclass(frozen=True)
class _Box:
    """Where a node stands: along the chain, and across it."""

    along: float
    across: float
    length: float
    breadth: float


def draw_across(graph: Graph) -> str:
    """Draw the chain along the width of a page."""
    return _draw(graph, length=136, breadth=74, gap=30, upright=False)


def draw_down(graph: Graph) -> str:
    """Draw the chain downwards, for a narrow screen."""
    return _draw(graph, length=72, breadth=88, gap=34, upright=True)


def _draw(graph: Graph, length: float, breadth: float, gap: float, upright: bool) -> str:
    boxes, extent = _place(graph, length, breadth, gap)
    along = max(box.along + box.length for box in boxes.values()) + 1
    size = (extent, along) if upright else (along, extent)
    parts = [_arrow(boxes[a], boxes[b], upright, gap) for a, b in graph.edges]
    parts += [_draw_node(node, boxes[node.name], upright) for node in graph.nodes]
    name = "down" if upright else "across"
    return (
        f'<svg class="lineage {name}" role="img" viewBox="0 0 {size[0]:g} {size[1]:g}" '
        f'aria-label="Graph of the stages and what each read">'
        f'<defs><marker id="head-{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>'
        f"{''.join(parts)}</svg>"
    )


def _place(
    graph: Graph, length: float, breadth: float, gap: float
) -> tuple[dict[str, _Box], float]:
    held = Counter(node.column for node in graph.nodes)
    arcs = 30.0  # room above the boxes for edges that pass over a stage
    extent = max(max(held.values()) * (breadth + 8) - 8 + 2, breadth + 2 * arcs)
    filled: Counter[int] = Counter()
    boxes = {}
    for node in graph.nodes:
        stack = held[node.column] * (breadth + 8) - 8
        across = (extent - stack) / 2 + filled[node.column] * (breadth + 8)
        boxes[node.name] = _Box(node.column * (length + gap) + 1, across, length, breadth)
        filled[node.column] += 1
    return boxes, extent


def _arrow(a: _Box, b: _Box, upright: bool, gap: float) -> str:
    """Draw an edge: straight on to the next column, or in an arc over the columns between."""
    start, end = (a.along + a.length, a.across + a.breadth / 2), (b.along, b.across + b.breadth / 2)
    bend = gap / 2
    if end[0] - start[0] <= gap + 1:
        points = [start, (start[0] + bend, start[1]), (end[0] - bend, end[1]), end]
        return _path("edge", points, upright)
    start, level = (a.along + a.length * 0.72, a.across), a.across - 14 - 8 * (a.along > 2)
    rise = [start, (start[0] + 4, level), (start[0] + 10, level), (start[0] + 24, level)]
    if abs(b.across - a.across) < 1:
        end = (b.along + b.length * 0.28, b.across)
        fall = [(end[0] - 24, level), (end[0] - 10, level), (end[0] - 4, level), end]
    else:
        fall = [(end[0] - gap - 8, level), (end[0] - bend, level), (end[0] - bend, end[1]), end]
    return _path("edge over", [*rise, *fall], upright)


def _path(kind: str, points: list[tuple[float, float]], upright: bool) -> str:
    """Write one Bezier curve of four points, or two of them joined by a straight line."""
    spots = [f"{p[1]:.1f} {p[0]:.1f}" if upright else f"{p[0]:.1f} {p[1]:.1f}" for p in points]
    parts = [spots[i : i + 4] for i in range(0, len(spots), 4)]
    curve = "L".join(f"{part[0]}C{' '.join(part[1:])}" for part in parts)
    head = "down" if upright else "across"
    return f'<path class="{kind}" marker-end="url(#head-{head})" d="M{curve}"/>'


def _draw_node(node: Node, box: _Box, upright: bool) -> str:
    x, y = (box.across, box.along) if upright else (box.along, box.across)
    width, height = (box.breadth, box.length) if upright else (box.length, box.breadth)
    middle = x + width / 2
    kind = "node page" if node.name == PAGE else f"node {escape(node.name)}"
    top = y + (height - 14 * len(node.lines)) / 2 + 3
    return (
        f'<g class="{kind}"><title>{escape(node.name)} {node.digest}</title>'
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7"/>'
        f'<text class="name" x="{middle:g}" y="{top:g}">{escape(node.name)}</text>'
        f"{''.join(_lines(node, middle, top))}</g>"
    )


def _lines(node: Node, x: float, top: float) -> Iterator[str]:
    for number, line in enumerate(node.lines, 1):
        mono = ' class="mono"' if node.digest.startswith(line) and node.digest else ""
        yield f'<text{mono} x="{x:g}" y="{top + 14.5 * number:g}">{escape(line)}</text>'
