"""Which stages each run used: what garbage collection keeps, and whose work is under way.

<store>/runs/<id>.json     one run: its stages in order, noted before each starts
<store>/runs/<id>.lock     held while the run's process lives
"""

import os
import socket
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from shadow_model.disk import naming_full_disk
from shadow_model.locking import is_locked, try_lock
from shadow_model.schema import Schema
from shadow_model.store import Store, write_whole

RUNS = "runs"
State = Literal["started", "built", "cached"]


class StageUse(Schema):
    """One stage of a run."""

    label: str
    stage: str
    key: str
    state: State = Field(description="started: not ended yet, or the run died in it")


class RunRecord(Schema):
    """One run."""

    version: Literal[1] = 1
    id: str
    name: str = Field("", description="that a person reads, as 'proof tiny'")
    host: str = ""
    updated: str = Field("", description="UTC of the last stage's start or end, ISO 8601")
    uses: tuple[StageUse, ...] = ()

    @property
    def used(self) -> set[tuple[str, str]]:
        """Stage and key of all that it used."""
        return {(use.stage, use.key) for use in self.uses}


class RunLog:
    """Keeps the record of the run of this process; a retried run goes on with its own.

    Args:
        store: Where the record lies.
        ident: Of the run, unique in the store.
        name: That a person reads.
    """

    def __init__(self, store: Store, ident: str, name: str) -> None:
        self._lock: int | None = None
        self._store, self._path = store, _path(store, ident)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = try_lock(self._path.with_suffix(".lock"))  # held until this process ends
        before = _read(self._path)
        self._uses = {(use.label, use.key): use for use in before.uses} if before else {}
        self._record = RunRecord(id=ident, name=name, host=socket.gethostname())

    def note(self, uses: Iterable[StageUse]) -> None:
        """Record stages; noted before they start, none can be collected from then on."""
        self._uses |= {(use.label, use.key): use for use in uses}
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        record = self._record.replace(uses=tuple(self._uses.values()), updated=now)
        with naming_full_disk(self._store.root), self._store.publishing():
            write_whole(self._path, record.model_dump_json(indent=1).encode())

    def __del__(self) -> None:
        if self._lock is not None:
            os.close(self._lock)


def run_records(store: Store) -> list[RunRecord]:
    """Return the runs of a store, the newest first; unreadable records are passed over."""
    found = [_read(path) for path in (store.root / RUNS).glob("*.json")]
    return sorted(filter(None, found), key=lambda record: record.updated, reverse=True)


def is_alive(store: Store, ident: str) -> bool:
    """Tell whether the process of a run still lives on this machine."""
    return is_locked(_path(store, ident).with_suffix(".lock"))


def files_of(store: Store, ident: str) -> Iterator[Path]:
    """Yield the files of a run's record."""
    path = _path(store, ident)
    yield from (p for p in (path, path.with_suffix(".lock")) if p.exists())


def _path(store: Store, ident: str) -> Path:
    return store.root / RUNS / f"{ident}.json"


def _read(path: Path) -> RunRecord | None:
    try:
        return RunRecord.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
