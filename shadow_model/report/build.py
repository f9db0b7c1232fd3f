"""Stage 8: receipts and metrics become one self-contained page and its JSON twin."""

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from shadow_model.progress import Progress, silent
from shadow_model.report import words
from shadow_model.report.config import ReportConfig
from shadow_model.report.content import Findings, page_content, read_findings
from shadow_model.report.curves import (
    THROUGHPUT,
    curve_data,
    loss_curve,
    throughput_curve,
)
from shadow_model.report.embedding import embedded_json, page_text
from shadow_model.report.grids import arrange, cell
from shadow_model.report.inputs import SAMPLE_SHEETS, SAMPLES, ReportInputs
from shadow_model.report.lineage import draw_across, draw_down, lineage_graph
from shadow_model.report.media import Playable, read_playables
from shadow_model.report.pairing import TOTAL
from shadow_model.report.previews import Preview, read_previews
from shadow_model.store import write_whole
from shadow_model.table.layout import KINDS

HTML, JSON = "report.html", "report.json"
_NUM_STEPS = 4


def build_report(
    out: Path, inputs: ReportInputs, config: ReportConfig, progress: Progress = silent
) -> dict[str, Any]:
    """Write report.html and report.json into a folder; the same inputs give the same bytes.

    Args:
        out: Folder to write into; it must exist.
        inputs: Folders of the finished stages, and all receipts.
        config: What the page shows.

    Returns:
        The verdict's outcome and headline, and the page's size: the receipt's figures.

    Raises:
        DataError: A stage's metrics, figures, bin or picture cannot be read.
        LayoutError: The table cannot be read.
    """
    progress(0, _NUM_STEPS, "report: reading receipts and metrics")
    findings = read_findings(inputs)
    content = page_content(findings, inputs, config)
    progress(1, _NUM_STEPS, "report: drawing")
    previews = read_previews(inputs.sources, config.max_previews) if inputs.sources else []
    sheets = _sheets(inputs, config)
    curves = _curves(findings, config), _curve_data(findings, config)
    samples = inputs.export / SAMPLES if inputs.export else None
    played = read_playables(samples, findings.samples) if samples else []
    page = render(content, *curves, _lineage(inputs), previews, sheets, played)
    progress(2, _NUM_STEPS, "report: writing")
    write_whole(out / HTML, page.encode())
    write_whole(out / JSON, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())
    progress(_NUM_STEPS, _NUM_STEPS, "report: written")
    verdict = content["verdict"]
    return {
        "outcome": verdict["outcome"],
        "headline": verdict["headline"],
        "page_bytes": len(page.encode()),
        "pictures": len(previews),
    }


def render(
    content: dict[str, Any],
    curves: dict[str, str],
    curve_lines: dict[str, Any],
    lineage: list[str],
    previews: list[Preview],
    sheets: Sequence[Preview] = (),
    played: Sequence[Playable] = (),
) -> str:
    """Fill the page's template.

    Args:
        content: The JSON twin.
        curves: "total", a kind or "throughput" -> SVG element.
        curve_lines: The same names -> what the page draws from once it can.
        lineage: SVG elements: across and down.
        previews: Pictures of the data.
        sheets: Samples of the looped model below the data's own.
        played: Those of them that play.
    """
    folder = files("shadow_model.report")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        quantity=words.quantity,
        duration=words.duration,
        size=words.size,
        loss=words.loss,
        change=words.change,
        words=words.spoken,
    )
    environment.globals.update(arrange=arrange, cell=cell, arm_names=words.ARM_NAMES)
    template = environment.from_string((folder / "page.html").read_text(encoding="utf-8"))
    return template.render(
        **{**content, "table_figures": content["table"]},
        style=page_text("uplot.css", "page.css"),
        script=page_text("uplot.js", "page.js"),
        curve_lines=embedded_json(curve_lines),
        curves={name: Markup(svg) for name, svg in curves.items()},
        lineage=[Markup(svg) for svg in lineage],
        previews=previews,
        sample_sheets=sheets,
        played=played,
    )


def _sheets(inputs: ReportInputs, config: ReportConfig) -> list[Preview]:
    if inputs.export is None:
        return []
    return read_previews(inputs.export, config.max_previews, SAMPLE_SHEETS)


def _curves(findings: Findings, config: ReportConfig) -> dict[str, str]:
    found = {
        kind: loss_curve(findings.runs, kind, findings.entropy_nats.get(kind), config.max_points)
        for kind in (TOTAL, *KINDS)
    }
    found[THROUGHPUT] = throughput_curve(findings.runs, config.max_points)
    return {name: svg for name, svg in found.items() if svg}


def _curve_data(findings: Findings, config: ReportConfig) -> dict[str, Any]:
    found = {
        kind: curve_data(findings.runs, kind, findings.entropy_nats.get(kind), config.max_points)
        for kind in (TOTAL, *KINDS, THROUGHPUT)
    }
    return {name: data for name, data in found.items() if data}


def _lineage(inputs: ReportInputs) -> list[str]:
    graph = lineage_graph(inputs.receipts)
    return [draw_across(graph), draw_down(graph)]
