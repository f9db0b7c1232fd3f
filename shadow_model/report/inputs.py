"""What a report reads: the folders of the finished stages and the receipts of all of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from shadow_model.errors import DataError
from shadow_model.receipt import Receipt
from shadow_model.store import Store


@dataclass(frozen=True)
class ReportInputs:
    """Folders of the stages' outputs; None leaves the stage's section out.

    Attributes:
        receipts: Of every stage that the report stands on, for the lineage.
        bins: The pack stage's folder.
    """

    receipts: Sequence[Receipt]
    sources: Path | None = None
    table: Path | None = None
    bins: Path | None = None
    smoke: Path | None = None
    speed: Path | None = None
    proof: Path | None = None
    flat: Path | None = None

    @classmethod
    def of(cls, store: Store, receipts: Sequence[Receipt]) -> Self:
        """Gather the folders of stages from a store, by the stage names in their receipts."""
        folders = {receipt.stage: store.folder(receipt) for receipt in receipts}
        names = {"sources", "table", "smoke", "speed", "proof", "flat"} & folders.keys()
        return cls(
            receipts=tuple(receipts),
            bins=folders.get("pack"),
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
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except (OSError, ValueError) as error:
        raise DataError(path, "be a JSON file", error, fix) from error
    if not isinstance(content, dict):
        raise DataError(path, "be a JSON object", type(content).__name__, fix)
    return content
