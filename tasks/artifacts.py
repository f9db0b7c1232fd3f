"""What a person sees of a stage in Prefect: its receipt as tables, the lineage as a picture."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect.artifacts import create_markdown_artifact

from shadow_model.receipt import Receipt

_MAX_FILES = 20


def artifact_key(label: str) -> str:
    """Return the stable artifact key of a label: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")


def publish_receipt(label: str, receipt: Receipt, folder: Path, cached: bool = False) -> None:
    """Publish a receipt as the artifact of its stage, in the run that is under way."""
    how = "cached: nothing was run" if cached else f"{receipt.seconds:.1f} s on {receipt.host}"
    create_markdown_artifact(
        key=artifact_key(label),
        markdown=receipt_markdown(label, receipt, folder),
        description=f"Stage {label}, {how}",
    )


def receipt_markdown(label: str, receipt: Receipt, folder: Path) -> str:
    """Return a receipt as markdown: figures, what was read, what was written, config."""
    files = [(f.name, f.sha256[:12], f"{f.bytes:,}") for f in receipt.outputs[:_MAX_FILES]]
    if rest := receipt.outputs[_MAX_FILES:]:
        files.append((f"and {len(rest)} more", "", f"{sum(f.bytes for f in rest):,}"))
    inputs = [(i.stage, i.key[:12], i.sha256[:12], f"{i.bytes:,}") for i in receipt.inputs]
    config = json.dumps(receipt.config, indent=1, ensure_ascii=False)
    return "\n".join(
        [
            f"# {label}",
            f"Key `{receipt.key}`, {receipt.started} to {receipt.ended}, in `{folder}`",
            *(
                f"Accepted {a.at} though changed ({a.what}): {a.reason}"
                for a in receipt.acceptances
            ),
            "## Figures",
            *markdown_table(("figure", "value"), _figures(receipt.counts)),
            *_nested_tables(receipt.counts),
            "## Read",
            *markdown_table(("stage", "key", "sha256", "bytes"), inputs),
            "## Written",
            *markdown_table(("file", "sha256", "bytes"), files),
            "## Config",
            f"```json\n{config}\n```",
            "## Versions",
            *markdown_table(("package", "version"), receipt.versions.items()),
        ]
    )


def lineage_mermaid(receipts: Sequence[Receipt]) -> str:
    """Return what was made from what as a mermaid graph.

    Batches of a stage are one node; what is read directly and through others has one way only.
    """
    counts = {r.stage: sum(other.stage == r.stage for other in receipts) for r in receipts}
    keys = {r.stage: r.key[:8] for r in receipts}
    notes = {s: f"x {count}" if count > 1 else keys[s] for s, count in counts.items()}
    nodes = [f'  {stage}["{stage} {note}"]' for stage, note in notes.items()]
    read = {s: {i.stage for r in receipts if r.stage == s for i in r.inputs} for s in counts}
    edges = [f"  {i} --> {s}" for s in counts for i in counts if i in _directly(s, read)]
    return "\n".join(["```mermaid", "graph LR", *nodes, *edges, "```"])


def markdown_table(header: Sequence[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return the lines of a markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]


def _directly(stage: str, read: Mapping[str, set[str]]) -> set[str]:
    through = {far for near in read[stage] for far in _ancestors(near, read)}
    return read[stage] - through


def _ancestors(stage: str, read: Mapping[str, set[str]]) -> set[str]:
    near = read.get(stage, set())
    return near.union(*(_ancestors(other, read) for other in near))


def _figures(counts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in counts.items():
        if isinstance(value, Mapping):
            yield from _figures(value, f"{prefix}{name}.")
        elif not _is_table(value):
            yield f"{prefix}{name}", _cell(value)


def _nested_tables(counts: Mapping[str, Any]) -> Iterator[str]:
    for name, rows in counts.items():
        if _is_table(rows):
            yield f"### {name}"
            yield from markdown_table(
                list(rows[0]), ([_cell(v) for v in row.values()] for row in rows)
            )


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("|", "\\|").replace("\n", " ")[:200]
