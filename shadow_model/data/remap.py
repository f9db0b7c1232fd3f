"""Shards of old ids -> shards of row ids (stage 2).

Chunks are mapped on other threads and written in order, so that memory is bounded by a few chunks
whatever the size of a shard. What happens to ids without a row is the config's choice, and counted.

Shapes: N ids of a chunk, M rows that they become.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from shadow_model.data.ahead import WORKERS, map_ahead
from shadow_model.data.id_layout import IdLayout
from shadow_model.data.lookup import MISSING, Lookup, Missing, lookup
from shadow_model.data.shard_writer import StreamingShard
from shadow_model.data.shards import count_ids, final_name, iter_shard
from shadow_model.data.tally import count_kinds, named
from shadow_model.data.text import Pieces
from shadow_model.data.writing import require_space
from shadow_model.errors import DataError
from shadow_model.progress import Progress, silent
from shadow_model.schema import Schema
from shadow_model.table.layout import KINDS, Layout
from shadow_model.table.store import Table

FINAL_FOLDER = "ids_final"
_CHUNK_IDS = 1 << 19
_ROW_BYTES, _NPZ_OVERHEAD_BYTES = 4, 1024


class RemapConfig(Schema):
    """How old ids become rows."""

    missing: Missing = Field(
        "expand",
        description="an old id without a row: expand into its byte pieces, drop it, or error",
    )
    old_vocabulary: int | None = Field(
        None,
        ge=1,
        lt=MISSING,
        description="old ids in all, where the shards come without layout.json; "
        "none: as far as the table's largest old id",
    )


class _Chunk(NamedTuple):
    """A mapped chunk: (M,) uint32 rows, the crc32 of their bytes, and its counts."""

    rows: np.ndarray
    crc: int
    counts: "_Counts"


class _Counts(NamedTuple):
    """What happened to tokens; `kinds` is (4,) of the tokens out, in the order of KINDS."""

    tokens_in: int = 0
    tokens_out: int = 0
    expanded: int = 0
    dropped: int = 0
    kinds: np.ndarray = np.zeros(len(KINDS), np.int64)

    def plus(self, other: "_Counts") -> "_Counts":
        return _Counts(
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.expanded + other.expanded,
            self.dropped + other.dropped,
            self.kinds + other.kinds,
        )

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "kinds": named(self.kinds)}


class _Mapper(NamedTuple):
    """Everything that mapping a chunk needs."""

    lookup: Lookup
    layout: Layout


def remap_shards(
    ids: Path,
    names: Sequence[str],
    table_folder: Path,
    out: Path,
    config: RemapConfig,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Write `out/ids_final/<lane>/<source>/part_*.npz` for some shards of old ids.

    Args:
        ids: Folder of the shards and, if there is one, of layout.json.
        names: Shards, as paths relative to `ids`.
        table_folder: Holds table.npz.

    Returns:
        Counts: shards, tokens_in, tokens_out, expanded and dropped (ids), kinds (tokens out), empty
        (shards of which nothing was left, which are not written), and the same for each lane.

    Raises:
        DataError: A shard is unreadable, holds an id outside the vocabulary or one that may not be
            lost; or the disk has no room.
        LayoutError: Table and old ids do not belong together.
    """
    mapper = _load_mapper(ids, table_folder, config)
    sizes = [count_ids(ids / name) for name in names]
    require_space(out, sum(sizes) * _ROW_BYTES + _NPZ_OVERHEAD_BYTES * len(names))
    lanes: dict[str, _Counts] = {}
    empty, done = 0, 0
    with ThreadPoolExecutor(WORKERS) as pool:
        for name, size in zip(names, sizes, strict=True):
            progress(done, sum(sizes), f"remap {name}")
            counts = _remap_shard(pool, mapper, ids / name, out / FINAL_FOLDER / final_name(name))
            lane = name.partition("/")[0]
            lanes[lane] = lanes.get(lane, _Counts()).plus(counts)
            empty += counts.tokens_out == 0
            done += size
    progress(done, sum(sizes), "remap")
    total = _sum(lanes.values())
    by_lane = {lane: counts.as_json() for lane, counts in sorted(lanes.items())}
    return {"shards": len(names), "empty": empty, **total.as_json(), "lanes": by_lane}


def batch_shards(
    names: Sequence[str], sizes: Mapping[str, int] | Sequence[int], max_tasks: int = 64
) -> list[list[str]]:
    """Divide shards into runs of about equal size: none exceeds its part by more than one shard.

    Args:
        names: Shards.
        sizes: Bytes of each: by name, or in the order of `names`.
        max_tasks: Most batches.

    Returns:
        Batches, none empty; one after the other they are all shards, sorted.
    """
    by_name = sizes if isinstance(sizes, Mapping) else dict(zip(names, sizes, strict=True))
    ordered = sorted(names)
    weights = np.array([max(by_name[name], 1) for name in ordered], np.float64)
    middles = np.cumsum(weights) - weights / 2
    places = middles * min(max_tasks, len(ordered)) // weights.sum()
    pairs = zip(places, ordered, strict=True)
    return [[name for _, name in run] for _, run in groupby(pairs, key=itemgetter(0))]


def _load_mapper(ids: Path, table_folder: Path, config: RemapConfig) -> _Mapper:
    table = Table.load(table_folder / "table.npz")
    layout = IdLayout.load(ids)
    pieces = Pieces.load(ids / layout.pieces) if layout and layout.pieces else None
    found = lookup(table, layout, pieces, config.missing, config.old_vocabulary)
    return _Mapper(found, table.layout)


def _remap_shard(pool: Executor, mapper: _Mapper, path: Path, out: Path) -> _Counts:
    counts = _Counts()
    with StreamingShard(out) as shard:
        chunks = _placed(iter_shard(path, _CHUNK_IDS))
        for chunk in map_ahead(pool, lambda placed: _map_chunk(mapper, path, *placed), chunks):
            shard.append(chunk.rows, chunk.crc)
            counts = counts.plus(chunk.counts)
    return counts


def _placed(chunks: Iterable[np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each chunk after the position of its first id in the shard."""
    start = 0
    for ids in chunks:
        yield start, ids
        start += len(ids)


def _map_chunk(mapper: _Mapper, path: Path, start: int, ids: np.ndarray) -> _Chunk:
    outside = mapper.lookup.first_out_of_range(ids)
    if outside is not None:
        raise _out_of_range(mapper, path, start + outside, int(ids[outside]))
    mapped = mapper.lookup.apply(ids)
    if mapped is None:
        at = mapper.lookup.first_refused(ids)
        assert at is not None
        raise _refused(mapper, path, start + at, int(ids[at]))
    rows = mapped.rows
    kinds = count_kinds(rows, mapper.layout) if len(rows) else _Counts().kinds
    counts = _Counts(len(ids), len(rows), mapped.num_expanded, mapped.num_dropped, kinds)
    return _Chunk(rows, zlib.crc32(rows.data), counts)


def _out_of_range(mapper: _Mapper, path: Path, position: int, old: int) -> DataError:
    must = f"hold old ids below {mapper.lookup.num_ids}, the size of the vocabulary"
    fix = "Name the layout.json of these shards, or set remap.old_vocabulary if they have none."
    return DataError(path, must, f"id {old} at position {position}", fix)


def _refused(mapper: _Mapper, path: Path, position: int, old: int) -> DataError:
    expands = mapper.lookup.missing == "expand"
    must = "hold ids that have a row" + (" or can be spelled in byte pieces" if expands else "")
    fix = "Set remap.missing to 'drop' to lose such ids, or keep more pieces in the table."
    if expands:
        fix += " Expanding needs a layout.json that names its tokenizer."
    return DataError(path, must, f"id {old} without a row at position {position}", fix)


def _sum(counts: Iterable[_Counts]) -> _Counts:
    total = _Counts()
    for one in counts:
        total = total.plus(one)
    return total
