"""Several runs side by side: their curves over one another, losses, costs, and what they differ in.

Runs are read from the JSON twins of their pages, so that a page that was sent along will do.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from shadow_model.differences import value_changes
from shadow_model.errors import ConfigError, DataError
from shadow_model.reading import reading
from shadow_model.report import words
from shadow_model.report.content import VERSION
from shadow_model.report.curves import THROUGHPUT, curve_data
from shadow_model.report.embedding import embedded_json, page_text
from shadow_model.report.inputs import read_json
from shadow_model.report.pairing import TOTAL
from shadow_model.report.runs import Evaluation, Growth, Interval, Run
from shadow_model.run_record import run_records
from shadow_model.store import Store, write_whole
from shadow_model.table.layout import KINDS

HTML, JSON = "compare.html", "compare.json"
_REPORT, _TWIN = "report", "report.json"
_COLOURS = ("#3b78c9", "#d0691b", "#3f9a55", "#a45bc4", "#c2434f", "#7d7458", "#2b97a3", "#96762b")
_MAX_POINTS = 400


@dataclass(frozen=True)
class Compared:
    """One run.

    Attributes:
        label: That a person reads; no two are equal.
        content: Its page's JSON twin.
    """

    label: str
    content: Mapping[str, Any]


def compare_runs(store: Store, names: Sequence[str], out: Path) -> Path:
    """Write the page of several runs, and its JSON twin beside it.

    Args:
        store: Where runs are looked up.
        names: Of each run: an id, the beginning of one, its name, or a report's folder or JSON.
        out: Folder to write into; made if absent.

    Returns:
        The page.

    Raises:
        ConfigError: A name is of no run, or of several.
        DataError: A report cannot be read.
    """
    runs = _distinct([find_run(store, name) for name in names])
    content = compare_content(runs)
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / JSON, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())
    page = page_of_runs(content, list(_arms(runs)), f"{len(runs)} runs compared")
    write_whole(out / HTML, page.encode())
    return out / HTML


def find_run(store: Store, name: str) -> Compared:
    """Read a run's report; see `compare_runs`."""
    path = Path(name).expanduser()
    if path.exists():
        twin = path / _TWIN if path.is_dir() else path
        content = _read(twin)
        return Compared(f"{content['title']}, {twin.parent.name[:8]}", content)
    records = [r for r in run_records(store) if any(u.stage == _REPORT for u in r.uses)]
    found = [r for r in records if r.id.startswith(name) or r.name == name]
    if len(found) != 1:
        known = "; ".join(f"{r.id[:8]} {r.name}" for r in found or records) or "none has a report"
        must = "be one run of the store, or a report's folder"
        fix = "Name one by the beginning of its id."
        raise ConfigError(f"run {name}", must, f"of {len(found)}: {known}", fix)
    (use,) = [use for use in found[0].uses if use.stage == _REPORT][-1:]
    twin = store.root / "stages" / use.stage / use.key / _TWIN
    return Compared(f"{found[0].name} {found[0].id[:8]}", _read(twin))


def compare_content(runs: Sequence[Compared]) -> dict[str, Any]:
    """Gather all figures of the page as JSON-able values."""
    return {
        "version": VERSION,
        "runs": [{"label": r.label, "headline": r.content["verdict"]["headline"]} for r in runs],
        "held_out": [row for kind in (*KINDS, TOTAL) if (row := _losses(runs, kind))],
        "costs": [
            {"run": run.label, "arm": arm, **cost}
            for run in runs
            for arm, cost in run.content["costs"].items()
        ],
        "differences": list(_differences(runs)),
    }


def _read(twin: Path) -> dict[str, Any]:
    content = read_json(twin)
    if content.get("version") != VERSION:
        fix = "Run it again: `shadow run` builds the page of a finished run in no time."
        raise DataError(twin, f"be a report of version {VERSION}", content.get("version"), fix)
    return content


def _distinct(runs: Sequence[Compared]) -> list[Compared]:
    labels = [run.label for run in runs]
    return [
        Compared(f"{run.label} ({i})", run.content) if labels.count(run.label) > 1 else run
        for i, run in enumerate(runs, 1)
    ]


def _losses(runs: Sequence[Compared], kind: str) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for run in runs:
        rows = {row["kind"]: row for row in run.content["held_out"]}
        for arm in run.content["costs"]:
            end = (rows.get(kind) or {}).get(arm)
            found[f"{run.label}, {words.ARM_NAMES[arm]}"] = end["end"] if end else None
    return {"kind": kind, "losses": found} if any(found.values()) else None


def _differences(runs: Sequence[Compared]) -> Iterator[dict[str, Any]]:
    """Yield what each run's stages were configured with otherwise than the first run's."""
    first, *others = [{s["stage"]: s.get("config", {}) for s in r.content["stages"]} for r in runs]
    for run, configs in zip(runs[1:], others, strict=True):
        for stage in dict.fromkeys([*first, *configs]):
            changes = value_changes("", first.get(stage, {}), configs.get(stage, {}))
            lines = [change for change in changes if stage != _REPORT]
            yield from ({"run": run.label, "stage": stage, "change": line} for line in lines)


def _curves(arms: Sequence[tuple[str, Run]]) -> dict[str, Any]:
    found = {}
    for kind in (TOTAL, *KINDS, THROUGHPUT):
        parts = [curve_data([run], kind, None, _MAX_POINTS) for _, run in arms]
        lines = []
        for number, ((label, run), part) in enumerate(zip(arms, parts, strict=True)):
            for line in part["lines"] if part else []:
                name = words.ARM_NAMES.get(run.name, run.tag)
                told = f"{label}, {line['label']}" if line["label"] else f"{label}, {name}"
                lines.append({**line, "label": told, "colour": _COLOURS[number % len(_COLOURS)]})
        growths = [growth for part in parts if part for growth in part["growths"]]
        if lines:
            unit = next(part["unit"] for part in parts if part)
            found[kind] = {"unit": unit, "level": None, "lines": lines, "growths": growths}
    return found


def _arms(runs: Sequence[Compared]) -> Iterator[tuple[str, Run]]:
    for run in runs:
        for name, arm in run.content["runs"].items():
            with reading(DataError, run.label, "hold a report's curves", "Build its page again."):
                parsed = _run(name, arm)
            yield run.label, parsed


def _run(name: str, arm: Mapping[str, Any]) -> Run:
    return Run(
        name=name,
        start=arm["start"],
        intervals=tuple(Interval.model_validate(i) for i in arm["intervals"]),
        evaluations=tuple(Evaluation.model_validate(e) for e in arm["evaluations"]),
        growths=tuple(Growth.model_validate(g) for g in arm["growths"]),
        around_growth=(),
        final=arm["final"],
    )


def page_of_runs(
    content: Mapping[str, Any],
    arms: Sequence[tuple[str, Run]],
    title: str,
    refresh_s: int | None = None,
) -> str:
    """Return a page of trained arms.

    Args:
        content: As of `compare_content`.
        arms: Label of its run, and each arm, for the curves.
        refresh_s: The page loads itself anew after so many seconds; None: it is final.
    """
    curves = _curves(arms)
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        quantity=words.quantity, duration=words.duration, size=words.size, loss=words.loss
    )
    source = (files("shadow_model.report") / "compare.html").read_text(encoding="utf-8")
    return environment.from_string(source).render(
        **content,
        title=title,
        refresh_s=refresh_s,
        arm_names=words.ARM_NAMES,
        curves=list(curves),
        curve_lines=embedded_json(curves),
        style=page_text("uplot.css", "page.css"),
        script=page_text("uplot.js", "page.js"),
    )
