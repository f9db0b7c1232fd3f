"""Stage 0, first step: what raw files there are, by content. The root of every lineage.

Never cached: it is the look at the files that decides whether anything else is.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Concatenate, Generic, ParamSpec

from prefect import Task, runtime, task
from prefect.cache_policies import NO_CACHE

from shadow_model.data.sources import SourcesConfig, list_raw
from shadow_model.digest import sha256_text
from shadow_model.errors import DataError
from shadow_model.receipt import FileRecord, Identity, Receipt
from shadow_model.store import Store
from tasks.artifacts import publish_receipt

P = ParamSpec("P")
STAGE = "raw"
_FILE = "raw.json"


@dataclass(frozen=True)
class Look(Generic[P]):
    """A look at raw files that is not yet bound to a store.

    Args:
        label: Name that a person reads, as "0 raw inputs".
        listing: Store and config -> the files, with their digests.
    """

    label: str
    listing: Callable[Concatenate[Store, P], Sequence[FileRecord]]

    def bind(self, store: Store) -> Task[P, Receipt]:
        """Return the Prefect task that looks, and records in `store` what it saw."""

        @task(name=STAGE, task_run_name=self.label, cache_policy=NO_CACHE)
        def look(*args: P.args, **kwargs: P.kwargs) -> Receipt:
            """List the raw files with their sha256."""
            return _record(self.label, store, self.listing(store, *args, **kwargs))

        return look

    def foresee(self, store: Store, *args: P.args, **kwargs: P.kwargs) -> Receipt:
        """Return the receipt that the task would, without writing one."""
        files = self.listing(store, *args, **kwargs)
        identity, text = _identity(files), _text(files)
        output = FileRecord(name=_FILE, sha256=sha256_text(text), bytes=len(text.encode()))
        foreseen = Receipt(**identity.model_dump(), key=identity.key, outputs=(output,))
        return store.find(STAGE, identity.key) or foreseen


def _list_inputs(_store: Store, config: SourcesConfig) -> Sequence[FileRecord]:
    return list_raw(config)


def _list_vectors(store: Store, files: Mapping[str, Path]) -> Sequence[FileRecord]:
    return [_file(store, *item) for item in files.items()]


raw_inputs = Look("0 raw inputs", _list_inputs)
"""The raw files of a sources config."""
raw_vectors = Look("1 raw vectors", _list_vectors)
"""The files which a table config names: vectors, tokenizer, ratings."""


def _file(store: Store, name: str, path: Path) -> FileRecord:
    if not path.is_file():
        raise DataError(path, f"be the file of table.{name}", "no such file", "Correct its path.")
    return FileRecord(name=name, sha256=store.memo.digest(path), bytes=path.stat().st_size)


def _identity(files: Sequence[FileRecord]) -> Identity:
    return Identity.of(STAGE, [], {"files": [file.model_dump() for file in files]}, modules=[])


def _text(files: Sequence[FileRecord]) -> str:
    return json.dumps([file.model_dump() for file in files], indent=1)


def _record(label: str, store: Store, files: Sequence[FileRecord]) -> Receipt:
    identity = _identity(files)
    receipt = store.find(STAGE, identity.key)
    if receipt is None:
        with store.build(identity, runtime.flow_run.id, runtime.task_run.id) as build:
            (build.folder / _FILE).write_text(_text(files), encoding="utf-8")
            build.counts.update(files=len(files), bytes=sum(f.bytes for f in files))
        assert build.receipt is not None
        receipt = build.receipt
    publish_receipt(label, receipt, store.folder(receipt))
    return receipt
