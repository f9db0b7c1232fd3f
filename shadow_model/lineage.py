"""From any output file back to the raw sources, through receipts alone.

A file need not lie in the store: a copy of it is found by its content.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shadow_model.digest import sha256_file
from shadow_model.errors import DataError
from shadow_model.receipt import FileRecord, InputRecord, Receipt
from shadow_model.store import Store

_DIGITS = 12
_RAW_FILES = 12
_BATCHES = 3


@dataclass(frozen=True)
class Origin:
    """One stage of a lineage.

    Attributes:
        stage: Its name.
        key: Its key.
        receipt: None where its outputs were collected since, or built again with another content.
        sources: What it read.
    """

    stage: str
    key: str
    receipt: Receipt | None
    sources: tuple["Origin", ...] = ()


@dataclass(frozen=True)
class Lineage:
    """Where a file came from."""

    file: Path
    record: FileRecord
    origin: Origin


def trace(store: Store, file: Path) -> Lineage:
    """Walk from a file to the raw sources.

    Raises:
        DataError: No stage of the store wrote a file of this content.
    """
    if not file.is_file():
        raise DataError(file, "be an output file", "no such file", "Correct its path.")
    receipt, record = _writer(store, file)
    seen: dict[tuple[str, str], Origin] = {}
    return Lineage(file, record, _origin(store, receipt, seen))


def lineage_lines(lineage: Lineage) -> list[str]:
    """Return a lineage as the lines of a text tree; a stage met again is not repeated."""
    record = lineage.record
    head = f"{lineage.file}  {record.bytes:,} bytes, sha256 {record.sha256[:_DIGITS]}"
    return [head, *_branch(lineage.origin, "", "`-- ", "    ", set())]


def _writer(store: Store, file: Path) -> tuple[Receipt, FileRecord]:
    """Return the receipt that names a file, and its entry there: by its place, or else content."""
    path, digest = file.resolve(), sha256_file(file)
    near = [r for r in _receipts(store) if path.is_relative_to(store.folder(r))]
    for receipt in near or _receipts(store):
        for record in receipt.outputs:
            if record.sha256 == digest and (
                not near or path == store.folder(receipt) / record.name
            ):
                return receipt, record
    fix = "Name the store that it was made in with --store, or run the chain again."
    raise DataError(file, f"be what a stage of {store.root} wrote", f"sha256 {digest}", fix)


def _receipts(store: Store) -> list[Receipt]:
    stages = sorted(path.name for path in (store.root / "stages").glob("*"))
    return [receipt for stage in stages for receipt in store.stage_receipts(stage)]


def _origin(store: Store, receipt: Receipt, seen: dict[tuple[str, str], Origin]) -> Origin:
    place = (receipt.stage, receipt.key)
    if place not in seen:
        sources = tuple(_source(store, record, seen) for record in receipt.inputs)
        seen[place] = Origin(*place, receipt, sources)
    return seen[place]


def _source(store: Store, record: InputRecord, seen: dict[tuple[str, str], Origin]) -> Origin:
    receipt = store.receipt(record.stage, record.key)
    if receipt is None or receipt.as_input().sha256 != record.sha256:
        return Origin(record.stage, record.key, None)
    return _origin(store, receipt, seen)


def _branch(
    origin: Origin, indent: str, stem: str, space: str, told: set[tuple[str, str]]
) -> Iterator[str]:
    place = (origin.stage, origin.key)
    again = place in told and origin.receipt is not None
    told.add(place)
    yield f"{indent}{stem}{origin.stage} {origin.key[:_DIGITS]}  {_note(origin, again)}"
    if again or origin.receipt is None:
        return
    below = [*_raw_lines(origin.receipt), *_fewer(origin.sources)]
    for number, item in enumerate(below, 1):
        last = number == len(below)
        stem, space_below = ("`-- ", "    ") if last else ("|-- ", "|   ")
        if isinstance(item, str):
            yield f"{indent}{space}{stem}{item}"
        else:
            yield from _branch(item, indent + space, stem, space_below, told)


def _note(origin: Origin, again: bool) -> str:
    if again:
        return "(above)"
    if (receipt := origin.receipt) is None:
        return "(collected since, or built again with another content)"
    note = f"{receipt.ended[:19].replace('T', ' ')} UTC on {receipt.host}, {receipt.seconds:,.1f} s"
    return ", ".join([note, *(f"accepted: {a.reason}" for a in receipt.acceptances)])


def _raw_lines(receipt: Receipt) -> list[str]:
    files = receipt.config.get("files", []) if not receipt.inputs else []
    rest = [f"and {len(files) - _RAW_FILES} more files"] if len(files) > _RAW_FILES else []
    shown = files[:_RAW_FILES]
    return [f"{f['name']}  {f['bytes']:,} bytes, {f['sha256'][:_DIGITS]}" for f in shown] + rest


def _fewer(sources: Sequence[Origin]) -> Iterator[Origin | str]:
    """Yield sources; of many batches of one stage the first, and how many more there are."""
    names = [source.stage for source in sources]
    for name in dict.fromkeys(names):
        batches = [source for source in sources if source.stage == name]
        yield from batches[:_BATCHES]
        if (rest := len(batches) - _BATCHES) > 0:
            yield f"and {rest} more of {name}"
