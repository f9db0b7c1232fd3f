"""What a report reads: the folders of the finished stages and the receipts of all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from shadow_model.errors import DataError
from shadow_model.reading import load_json, reading
from shadow_model.receipt import Receipt
from shadow_model.store import Store

SAMPLES = "samples"
SAMPLE_SHEETS = f"{SAMPLES}/*s.png"
TRAINING = ("proof", "flat", "arm", "matched")


@dataclass(frozen=True)
class ReportInputs:
    """Folders of the stages' outputs; None leaves the stage's section out.

    Attributes:
        receipts: Of every stage that the report stands on, for the lineage.
        bins: The pack stage's folder.
        proof: The looped arm's, of its first seed; so `flat`.
        trained: Stage and folder of every trained run, in order, those two among them.
    """

    receipts: Sequence[Receipt]
    sources: Path | None = None
    table: Path | None = None
    bins: Path | None = None
    smoke: Path | None = None
    speed: Path | None = None
    proof: Path | None = None
    flat: Path | None = None
    export: Path | None = None
    trained: Sequence[tuple[str, Path]] = ()

    @classmethod
    def of(cls, store: Store, receipts: Sequence[Receipt]) -> Self:
        """Gather the folders of stages from a store, by the stage names in their receipts."""
        folders: dict[str, Path] = {}
        for receipt in receipts:
            folders.setdefault(receipt.stage, store.folder(receipt))
        names = {"sources", "table", "smoke", "speed", "proof", "flat", "export"} & folders.keys()
        return cls(
            receipts=tuple(receipts),
            bins=folders.get("pack"),
            trained=tuple((r.stage, store.folder(r)) for r in receipts if r.stage in TRAINING),
            **{name: folders[name] for name in names},
        )

    def counts(self, stage: str) -> dict[str, Any]:
        """Return the figures of a stage's first receipt; empty if it has none."""
        return next((dict(r.counts) for r in self.receipts if r.stage == stage), {})


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        DataError: The file is absent or is not a JSON object.
    """
    fix = "Delete the stage's folder; the next run builds it again."
    with reading(DataError, path, "be a JSON file", fix):
        content = load_json(path, strict=False)
    if not isinstance(content, dict):
        raise DataError(path, "be a JSON object", type(content).__name__, fix)
    return content


def read_samples(export: Path) -> list[dict[str, Any]]:
    """Read what the export stage says of its samples; none where it made none.

    Raises:
        DataError: The file is not a JSON list.
    """
    path = export / SAMPLES / "samples.json"
    if not path.is_file():
        return []
    fix = "Delete the stage's folder; the next run builds it again."
    with reading(DataError, path, "be a JSON file", fix):
        content = load_json(path)
    if not isinstance(content, list):
        raise DataError(path, "be a JSON list", type(content).__name__, fix)
    return content
