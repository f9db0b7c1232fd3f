"""Stage 0, first step: what raw files there are, by content. The root of every lineage.

Never cached: it is the look at the files that decides whether anything else is.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from prefect import Task, runtime, task
from prefect.cache_policies import NO_CACHE

from shadow_model.data.sources import SourcesConfig, list_raw
from shadow_model.errors import DataError
from shadow_model.receipt import FileRecord, Identity, Receipt
from shadow_model.store import Store
from tasks.artifacts import publish_receipt

STAGE = "raw"


def raw_inputs(store: Store) -> Task[[SourcesConfig], Receipt]:
    """Return the task that records the digests of a config's raw files."""

    @task(name=STAGE, task_run_name="0 raw inputs", cache_policy=NO_CACHE)
    def list_raw_inputs(config: SourcesConfig) -> Receipt:
        """List the raw files with their sha256."""
        return _record("0 raw inputs", store, list_raw(config))

    return list_raw_inputs


def raw_vectors(store: Store) -> Task[[Mapping[str, Path]], Receipt]:
    """Return the task that records the digests of the files which a table config names."""

    @task(name=STAGE, task_run_name="1 raw vectors", cache_policy=NO_CACHE)
    def list_raw_vectors(files: Mapping[str, Path]) -> Receipt:
        """List the files of vectors, tokenizer and ratings with their sha256."""
        return _record("1 raw vectors", store, [_file(store, *item) for item in files.items()])

    return list_raw_vectors


def _file(store: Store, name: str, path: Path) -> FileRecord:
    if not path.is_file():
        raise DataError(path, f"be the file of table.{name}", "no such file", "Correct its path.")
    return FileRecord(name=name, sha256=store.memo.digest(path), bytes=path.stat().st_size)


def _record(label: str, store: Store, files: Sequence[FileRecord]) -> Receipt:
    listing = [file.model_dump() for file in files]
    identity = Identity.of(STAGE, [], {"files": listing}, modules=[])
    receipt = store.find(STAGE, identity.key)
    if receipt is None:
        with store.build(identity, runtime.flow_run.id, runtime.task_run.id) as build:
            (build.folder / "raw.json").write_text(json.dumps(listing, indent=1))
            build.counts.update(files=len(files), bytes=sum(f.bytes for f in files))
        assert build.receipt is not None
        receipt = build.receipt
    publish_receipt(label, receipt, store.folder(receipt))
    return receipt
