"""Shards of row ids -> train.bin and val.bin, two streams of uint32 (stage 3).

Shards are sorted by their path in ids_final/, shuffled and appended in that order; a shard is held
out by the checksum of that same path, so that neither order nor split changes when the data move.
Documents keep the separators that end them.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from pydantic import Field, NonNegativeFloat

from shadow_model.data.ahead import WORKERS, map_ahead
from shadow_model.data.bins import PACKED, TRAIN, VAL, Packed
from shadow_model.data.mixture import Entry, mix
from shadow_model.data.remap import FINAL_FOLDER
from shadow_model.data.shards import count_ids, final_name, is_held_out, iter_shard, list_shards
from shadow_model.data.tally import count_kinds, named
from shadow_model.data.writing import require_space, whole_file
from shadow_model.errors import DataError
from shadow_model.progress import Progress, silent
from shadow_model.schema import Schema
from shadow_model.store import write_whole
from shadow_model.table.layout import KINDS, Layout
from shadow_model.table.store import Table, table_digest

_CHUNK_IDS = 1 << 19
_TOKEN_BYTES = 4


class PackConfig(Schema):
    """How shards become bins."""

    val_every: int = Field(100, ge=2, description="one shard in this many is held out")
    lane_weights: dict[str, NonNegativeFloat] = Field(
        default_factory=dict,
        description="lane or lane/source -> its weight in the training tokens; empty: as they are",
    )
    shuffle_seed: int = Field(0, ge=0, description="decides the order of the shards")


_Counted = tuple[Entry, np.ndarray]
"""An entry and (4,) int64, its tokens by kind."""


class _Split(NamedTuple):
    """The entries of each bin, in their order."""

    train: list[Entry]
    val: list[Entry]


def pack_bins(
    folders: Sequence[Path],
    table_path: Path,
    out: Path,
    config: PackConfig,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Write train.bin, val.bin and packed.json.

    Args:
        folders: Each holds an ids_final/; together they hold every shard once.
        table_path: The table whose rows the ids are.

    Returns:
        What packed.json says.

    Raises:
        DataError: There is no shard, or one twice; a bin would be empty; a kind of the training
            tokens is absent from the held-out ones; an id is no row; the disk has no room.
        ConfigError: The lane weights do not fit the lanes.
    """
    layout = Table.load(table_path).layout
    shards = _gather(folders)
    _check_split([{""}] * len(shards), [s.name for s in shards], config.val_every)
    split = _arrange(shards, layout, config)
    num_tokens = sum(entry.tokens for entry in chain(*split))
    require_space(out, _TOKEN_BYTES * num_tokens)
    step = _stepper(progress, num_tokens)
    with (
        ThreadPoolExecutor(WORKERS) as pool,
        whole_file(out / TRAIN) as train_path,
        whole_file(out / VAL) as val_path,
    ):
        train = _write(train_path, split.train, pool, layout, step)
        val = _write(val_path, split.val, pool, layout, step)
        kinds_of = {entry.name: kinds for entry, kinds in [*train, *val]}
        present = [{str(KINDS[i]) for i in np.flatnonzero(kinds)} for kinds in kinds_of.values()]
        _check_split(present, list(kinds_of), config.val_every)
    packed = _describe(train, val, table_path, config)
    write_whole(out / PACKED, packed.model_dump_json(indent=1).encode() + b"\n")
    return packed.model_dump(mode="json")


def _gather(folders: Sequence[Path]) -> list[Entry]:
    """Return all shards of all folders, sorted by their name in ids_final/."""
    entries: dict[str, Entry] = {}
    for root in (folder / FINAL_FOLDER for folder in folders):
        if not any(root.glob("*/*/part_*")):
            continue  # a batch of which nothing was left
        for relative in list_shards(root):
            name, path = final_name(relative), root / relative
            if name in entries:
                must = "hold each shard once"
                found = f"{name} also in {entries[name].path}"
                raise DataError(path, must, found, "Remove one of them.")
            entries[name] = Entry(name, path, count_ids(path))
    if not entries:
        where = ", ".join(str(folder / FINAL_FOLDER) for folder in folders) or "folders"
        fix = "Check that the sources have data and that remap.missing does not drop all of it."
        raise DataError(where, "hold shards <lane>/<source>/part_*.npz", "none", fix)
    return sorted(entries.values())


def _arrange(shards: Sequence[Entry], layout: Layout, config: PackConfig) -> _Split:
    """Divide the shards and put each part in its order.

    The list, repeats included, is shuffled whole and then divided, so that the order of shards
    without weights is exactly that of `numpy.random.default_rng(seed).shuffle(sorted list)`.
    """
    val = [s for s in shards if is_held_out(s.name, config.val_every)]
    train = [s for s in shards if not is_held_out(s.name, config.val_every)]
    if config.lane_weights:
        train = mix(train, config.lane_weights, layout.marks["sep"], config.shuffle_seed)
    order = sorted([*train, *val])
    np.random.default_rng(config.shuffle_seed).shuffle(order)
    held_out = {entry.name for entry in val}
    return _Split(
        [entry for entry in order if entry.name not in held_out],
        [entry for entry in order if entry.name in held_out],
    )


def _check_split(held: Sequence[set[str]], names: Sequence[str], val_every: int) -> None:
    """Check that the held-out shards have all that the others have, and that there are others.

    Args:
        held: What each shard holds: its kinds.
        names: The shards' names in ids_final/.
    """
    absent = _absent(held, names, val_every)
    if absent is None:
        return
    fits = [v for v in range(2, 2 * val_every + 1) if _absent(held, names, v) is None]
    fix = "Write more and smaller shards; no pack.val_every nearby would do."
    if fits:
        nearest = min(fits, key=lambda v: abs(v - val_every))
        fix = f"Set pack.val_every to {nearest}, or write more and smaller shards."
    must = f"divide so that both bins hold every kind (pack.val_every = {val_every})"
    raise DataError(f"{len(names)} shards", must, absent, fix)


def _absent(held: Sequence[set[str]], names: Sequence[str], val_every: int) -> str | None:
    """Return what a split lacks, in words, or None."""
    out = [is_held_out(name, val_every) for name in names]
    train = set[str]().union(*(h for h, o in zip(held, out, strict=True) if not o))
    val = set[str]().union(*(h for h, o in zip(held, out, strict=True) if o))
    if not any(out):
        return "no shard held out"
    if all(out):
        return "no shard left for training"
    return f"no held-out {', '.join(sorted(train - val))}" if train - val else None


def _stepper(progress: Progress, total: int) -> Callable[[int, str], None]:
    done = 0

    def step(tokens: int, name: str) -> None:
        nonlocal done
        done += tokens
        progress(done, total, f"pack {name}")

    return step


def _write(
    temporary: Path,
    entries: Sequence[Entry],
    pool: Executor,
    layout: Layout,
    step: Callable[[int, str], None],
) -> list[_Counted]:
    """Write a bin; return each entry with its tokens by kind."""
    counted = []
    with temporary.open("wb") as file:
        for entry in entries:
            counted.append((entry, _append(file, pool, entry, layout)))
            step(entry.tokens, entry.name)
    return counted


def _append(file: IO[bytes], pool: Executor, entry: Entry, layout: Layout) -> np.ndarray:
    """Write one shard; return (4,) its tokens by kind."""
    kinds = np.zeros(len(KINDS), np.int64)
    for rows, counts in map_ahead(pool, lambda part: _check(entry, layout, *part), _parts(entry)):
        file.write(rows.data)
        kinds += counts
    return kinds


def _parts(entry: Entry) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the shard's rows by chunks, each after its position, as far as the entry goes."""
    start = 0
    for rows in iter_shard(entry.path, _CHUNK_IDS):
        if start >= entry.tokens:
            return
        yield start, np.ascontiguousarray(rows[: entry.tokens - start])
        start += len(rows)


def _check(
    entry: Entry, layout: Layout, start: int, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and (4,) how many are of each kind, once all are rows of the table."""
    if rows.max() >= layout.num_rows:
        at = int(np.argmax(rows >= layout.num_rows))
        must = f"hold rows below {layout.num_rows}, the size of the table"
        found = f"{rows[at]} at position {start + at}"
        raise DataError(entry.path, must, found, "Remap the shards with this table.")
    return rows, count_kinds(rows, layout)


def _describe(
    train: Sequence[_Counted],
    val: Sequence[_Counted],
    table_path: Path,
    config: PackConfig,
) -> Packed:
    lanes = sorted({_lane(entry) for entry, _ in chain(train, val)})
    bins = {"train": train, "val": val}
    return Packed(
        version=1,
        lanes=tuple(lanes),
        train=sum(entry.tokens for entry, _ in train),
        val=sum(entry.tokens for entry, _ in val),
        table=table_digest(table_path),
        val_every=config.val_every,
        shuffle_seed=config.shuffle_seed,
        lane_weights=config.lane_weights,
        kinds={
            name: named(np.sum([k for _, k in counted], axis=0)) for name, counted in bins.items()
        },
        lane_tokens={name: _by_lane(counted, lanes) for name, counted in bins.items()},
        shards={name: len(counted) for name, counted in bins.items()},
    )


def _by_lane(counted: Sequence[_Counted], lanes: Sequence[str]) -> dict[str, int]:
    tokens = dict.fromkeys(lanes, 0)
    for entry, _ in counted:
        tokens[_lane(entry)] += entry.tokens
    return tokens


def _lane(entry: Entry) -> str:
    return entry.name.partition("/")[0]
