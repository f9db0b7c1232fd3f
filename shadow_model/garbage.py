"""What a store can do without: outputs that no kept run refers to, and what dead runs left behind.

Kept are the last runs and those still alive, with all that their stages read, however far back.
Looking changes nothing. Removal first renames, under the lock that publishing takes, so that a run
that starts meanwhile either was seen or finds nothing; only then are files deleted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shadow_model.errors import CheckpointError, ConfigError
from shadow_model.locking import is_locked
from shadow_model.receipt import Receipt
from shadow_model.run_record import RunRecord, files_of, is_alive, run_records
from shadow_model.store import CODE, TEMPORARY, Store, lock_of
from shadow_model.unfinished import read_work

_STAGES, _WORK, _RESULTS, _LOCKS = "stages", "work", "results", "locks"
Key = tuple[str, str]


@dataclass(frozen=True)
class Garbage:
    """One folder or file that may go."""

    path: Path
    why: str


@dataclass(frozen=True)
class Collection:
    """What may go from a store, and the runs that are kept.

    Attributes:
        freed_bytes: By removal; a file that has another name elsewhere frees nothing.
    """

    kept: tuple[RunRecord, ...]
    garbage: tuple[Garbage, ...]
    freed_bytes: int


def find_garbage(store: Store, keep: int) -> Collection:
    """Look for what may go.

    Args:
        keep: Last runs to keep, 1 or more; runs that are alive are kept anyway.
    """
    if keep < 1:
        raise ConfigError("gc --keep", "be 1 or more", keep, "Delete the store to keep nothing.")
    runs = run_records(store)
    alive = [run for run in runs[keep:] if is_alive(store, run.id)]
    kept = (*runs[:keep], *alive)
    found = list(_temporary(store))
    if kept:  # without a record of any run nothing tells what is needed
        found += _unused(store, _needed(store, kept), runs, kept)
    return Collection(kept, tuple(found), _freed_bytes(item.path for item in found))


def remove_garbage(store: Store, keep: int) -> Collection:
    """Remove what `find_garbage` finds; returns that."""
    with store.temporary("garbage") as bin_folder, store.publishing():
        collection = find_garbage(store, keep)
        for number, item in enumerate(collection.garbage):
            item.path.rename(bin_folder / str(number))
    return collection


def _freed_bytes(paths: Iterable[Path]) -> int:
    statuses = [path.stat() for top in paths for path in _files(top)]
    links = Counter((s.st_dev, s.st_ino) for s in statuses)
    sizes = {(s.st_dev, s.st_ino): (s.st_size, s.st_nlink) for s in statuses}
    return sum(size for inode, (size, num) in sizes.items() if links[inode] >= num)


def _files(top: Path) -> Iterator[Path]:
    yield from [top] if top.is_file() else (p for p in top.rglob("*") if p.is_file())


def _temporary(store: Store) -> Iterator[Garbage]:
    for path in sorted((store.root / TEMPORARY).glob("*")):
        lock = lock_of(path)
        if path.is_dir() and not is_locked(lock):
            yield Garbage(path, "its owner is dead")
            yield from [Garbage(lock, "its owner is dead")] if lock.exists() else []


def _needed(store: Store, kept: Iterable[RunRecord]) -> set[Key]:
    """Return the stages of the kept runs, and all that led to them."""
    todo, needed = [key for run in kept for key in run.used], set[Key]()
    while todo:
        key = todo.pop()
        if key not in needed:
            needed.add(key)
            receipt = store.receipt(*key)
            todo += [(i.stage, i.key) for i in receipt.inputs] if receipt else []
    return needed


def _unused(
    store: Store, needed: set[Key], runs: Iterable[RunRecord], kept: tuple[RunRecord, ...]
) -> Iterator[Garbage]:
    for path in sorted((store.root / _STAGES).glob("*/*")):
        key = (path.parent.name, path.name)
        if key not in needed and not _is_locked(store, f"{key[0]}-{key[1]}"):
            yield Garbage(path, "no kept run refers to it")
            yield from _result(store, f"{key[0]}-{key[1]}")
    for path in sorted((store.root / _WORK).glob("*")):
        if _worker(path) not in needed and not _is_locked(store, path.name):
            yield Garbage(path, "unfinished work of a run that is gone")
    yield from _unused_code(store, needed)
    for run in runs:
        if run not in kept:
            yield from (
                Garbage(path, "not among the kept runs") for path in files_of(store, run.id)
            )


def _worker(work: Path) -> Key | None:
    """Return which stage last worked on unfinished work; None where it does not say."""
    try:
        record = read_work(work)
    except CheckpointError:
        return None
    return (record.stage, record.key) if record else None


def _result(store: Store, name: str) -> Iterator[Garbage]:
    if (path := store.root / _RESULTS / name).exists():
        yield Garbage(path, "Prefect's note of a stage that goes")


def _unused_code(store: Store, needed: set[Key]) -> Iterator[Garbage]:
    receipts: list[Receipt | None] = [store.receipt(*key) for key in needed]
    used = {digest for receipt in receipts if receipt for digest in receipt.code.values()}
    for path in sorted((store.root / CODE).glob("*.json")):
        if path.stem not in used:
            yield Garbage(path, "code of no kept stage")


def _is_locked(store: Store, name: str) -> bool:
    return is_locked(store.root / _LOCKS / f"{name}.lock")
