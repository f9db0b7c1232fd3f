"""Stage 2: ids of the sources become rows of the table, a batch of shards a task."""

from collections.abc import Mapping, Sequence
from typing import Any

from shadow_model.data.remap import RemapConfig, batch_shards, remap_shards
from shadow_model.receipt import Receipt
from tasks.stage import Work, stage_task

_IDS = "ids/"
# A task should have seconds of work, and Prefect's recording of runs bounds their number.
_BATCH_BYTES = 256 << 20
_MIN_TASKS, _MAX_TASKS = 4, 64
_SHARD_SUFFIXES = (".npz", ".parquet")


@stage_task("remap", "2 remap shards", modules=["shadow_model.data.remap"])
def remap_batch(
    work: Work, sources: Receipt, table: Receipt, names: Sequence[str], config: RemapConfig
) -> Mapping[str, Any]:
    """Look up the row of every id of some shards."""
    ids = work.of(sources) / _IDS
    return remap_shards(ids, names, work.of(table), work.folder, config, work.progress)


def shard_batches(sources: Receipt) -> dict[str, list[str]]:
    """Return {label: shards} for the remap tasks: batches of about equal size, numbered."""
    shards = {
        file.name.removeprefix(_IDS): file.bytes
        for file in sources.outputs
        if file.name.startswith(_IDS) and file.name.endswith(_SHARD_SUFFIXES)
    }
    names = sorted(shards)
    wanted = sum(shards.values()) // _BATCH_BYTES
    batches = batch_shards(names, shards, max_tasks=min(max(wanted, _MIN_TASKS), _MAX_TASKS))
    labels, first = {}, 0
    for batch in batches:
        labels[f"2 remap shards {first:05}-{first + len(batch) - 1:05}"] = batch
        first += len(batch)
    return labels
