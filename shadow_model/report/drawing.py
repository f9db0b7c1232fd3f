"""Matplotlib figures as inline SVG whose colours and fonts are the page's own.

A figure is drawn in stand-in colours, which are then replaced by CSS variables: one drawing serves
light, dark and print. Text stays text (searchable, in the reader's system font). The same figure
gives the same bytes.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, MUTED, GRID = "#0a0a01", "#0a0a02", "#0a0a03"
PROOF, FLAT, MARK = "#0a0a04", "#0a0a05", "#0a0a06"
CARD = "#0a0a07"
ARM_COLOURS = {"proof": PROOF, "flat": FLAT}
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    PROOF: "--proof",
    FLAT: "--flat",
    MARK: "--mark",
    CARD: "--card",
}
_STYLE: dict[Any, Any] = {
    "axes.edgecolor": GRID,
    "axes.grid": True,
    "axes.labelcolor": MUTED,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 11.0,
    "axes.titleweight": "bold",
    "font.family": "sans-serif",
    "font.size": 10.0,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.edgecolor": "none",
    "legend.facecolor": CARD,
    "legend.framealpha": 0.85,
    "legend.fontsize": 9.0,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.6,
    "savefig.transparent": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "shadow",
    "xtick.color": MUTED,
    "ytick.color": MUTED,
}


@contextmanager
def panel(width_in: float, height_in: float) -> Iterator[Axes]:
    """Give one pair of axes in the page's style, on a figure of that many inches (72 px each)."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        axes = figure.add_subplot()
        axes.set_axisbelow(True)
        yield axes


def to_svg(axes: Axes, name: str, label: str) -> str:
    """Return the axes' figure as an SVG element.

    Args:
        name: Unique on the page; it keeps the element ids of several figures apart.
        label: What the figure shows, for those who cannot see it.
    """
    buffer = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure = axes.get_figure(root=True)
        assert figure is not None
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", text)
    text = re.sub(r'(<svg [^>]*?)width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg [^>]*?)height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1).strip()
