"""A lineage as a picture: stages from the raw sources on the left to the file on the right.

What was read directly and through others has one way only, the long one.
"""

from collections import Counter
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from shadow_model.errors import ConfigError
from shadow_model.lineage import Lineage, Origin

_CANVASES = {".svg": FigureCanvasSVG, ".png": FigureCanvasAgg}
_COLUMN_INCH, _ROW_INCH, _DPI = 1.9, 1.1, 150
_BOX = {"boxstyle": "round,pad=0.5", "facecolor": "#f4f4f0", "edgecolor": "#555555"}
_FILE_BOX = {**_BOX, "facecolor": "#dfeaf4"}
Groups = dict[str, list[Origin]]


def draw_lineage(lineage: Lineage, path: Path) -> None:
    """Draw a lineage; batches of one stage are one box.

    Raises:
        ConfigError: The path ends in neither .svg nor .png.
    """
    if path.suffix not in _CANVASES:
        raise ConfigError(path, "end in .svg or .png", repr(path.suffix), "Correct its name.")
    groups = _groups(lineage.origin)
    columns = _columns(groups)
    places = _places(columns)
    last = max(columns.values()) + 1
    rows = max(Counter(columns.values()).values())
    figure = Figure(figsize=(_COLUMN_INCH * (last + 1), _ROW_INCH * rows + 0.4))
    _CANVASES[path.suffix](figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.5, last + 0.5), ylim=(-rows / 2, rows / 2))
    axes.set_axis_off()
    end = (float(last), 0.0)
    reads = _reads(groups)
    for name, sources in reads.items():
        for source in sources - {far for near in sources for far in _behind(near, reads)}:
            _arrow(axes, places[source], places[name])
    _arrow(axes, places[lineage.origin.stage], end)
    for name, group in groups.items():
        axes.annotate(
            _label(name, group), places[name], ha="center", va="center", size=8, bbox=_BOX
        )
    text = f"{lineage.file.name}\n{lineage.record.sha256[:12]}"
    axes.annotate(text, end, ha="center", va="center", size=8, bbox=_FILE_BOX)
    figure.savefig(path, dpi=_DPI)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    bend = 0.0 if end[0] - start[0] <= 1 else -0.25
    style = {
        "arrowstyle": "->",
        "color": "#777777",
        "shrinkA": 26,
        "shrinkB": 30,
        "connectionstyle": f"arc3,rad={bend}",
    }
    axes.annotate("", end, xytext=start, arrowprops=style)


def _groups(origin: Origin) -> Groups:
    found: dict[tuple[str, str], Origin] = {}
    todo = [origin]
    while todo:
        one = todo.pop()
        if (one.stage, one.key) not in found:
            found[one.stage, one.key] = one
            todo += one.sources
    groups: Groups = {}
    for one in found.values():
        groups.setdefault(one.stage, []).append(one)
    return groups


def _reads(groups: Groups) -> dict[str, set[str]]:
    return {name: {s.stage for one in group for s in one.sources} for name, group in groups.items()}


def _behind(name: str, reads: dict[str, set[str]]) -> set[str]:
    """Return all that a stage stands on."""
    return reads[name].union(*(_behind(source, reads) for source in reads[name]))


def _columns(groups: Groups) -> dict[str, int]:
    reads = _reads(groups)

    def column(name: str) -> int:
        return max((column(source) + 1 for source in reads[name]), default=0)

    found = {name: column(name) for name in groups}
    for name in groups:  # what reads nothing stands just before its first reader
        readers = [found[other] for other, sources in reads.items() if name in sources]
        if not reads[name] and readers:
            found[name] = min(readers) - 1
    return found


def _places(columns: dict[str, int]) -> dict[str, tuple[float, float]]:
    held, filled, places = Counter(columns.values()), Counter[int](), {}
    for name, column in columns.items():
        places[name] = (float(column), (held[column] - 1) / 2 - filled[column])
        filled[column] += 1
    return places


def _label(name: str, group: list[Origin]) -> str:
    what = group[0].key[:8] if len(group) == 1 else f"{len(group)} batches"
    receipts = [one.receipt for one in group if one.receipt]
    seconds = sum(receipt.seconds for receipt in receipts)
    gone = "" if len(receipts) == len(group) else "\ncollected since"
    return f"{name}\n{what}\n{seconds:,.1f} s{gone}"
