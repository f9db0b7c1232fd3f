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
            "## Figures",
            *_table(("figure", "value"), _figures(receipt.counts)),
            *_nested_tables(receipt.counts),
            "## Read",
            *_table(("stage", "key", "sha256", "bytes"), inputs),
            "## Written",
            *_table(("file", "sha256", "bytes"), files),
            "## Config",
            f"```json\n{config}\n```",
            "## Versions",
            *_table(("package", "version"), receipt.versions.items()),
        ]
    )


def lineage_mermaid(receipts: Sequence[Receipt]) -> str:
    """Return the stages and what they read as a mermaid graph; batches of a stage are one node."""
    stages = {r.stage: sum(other.stage == r.stage for other in receipts) for r in receipts}
    keys = {r.stage: r.key[:8] for r in receipts}
    nodes = [
        f'  {stage}["{stage} x {count}"]' if count > 1 else f'  {stage}["{stage} {keys[stage]}"]'
        for stage, count in stages.items()
    ]
    edges = dict.fromkeys(f"  {i.stage} --> {r.stage}" for r in receipts for i in r.inputs)
    return "\n".join(["```mermaid", "graph LR", *nodes, *edges, "```"])


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
            yield from _table(list(rows[0]), ([_cell(v) for v in row.values()] for row in rows))


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("|", "\\|").replace("\n", " ")[:200]


def _table(header: Sequence[str], rows: Iterable[Iterable[str]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]
