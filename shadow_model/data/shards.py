"""Shards: files of token ids, their names, and which of them are held out.

A shard is `<lane>/<source>/part_*.npz` with one 1-D integer array `ids`, or `.parquet` with a
column `ids`. Its *final name* is its path in `ids_final/`; the held-out split depends on that name
alone, so it is the same wherever the data lie, and known before anything is fitted.
"""

import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from shadow_model.data.npz_ids import (
    check_ids_type,
    find_member,
    iter_member,
    map_member,
    write_member,
)
from shadow_model.data.parquet_ids import count_parquet_ids, iter_parquet_ids
from shadow_model.data.writing import whole_file
from shadow_model.errors import DataError

SUFFIXES = (".npz", ".parquet")
_CHUNK_IDS = 1 << 20
_MAX_ID = (1 << 32) - 1


def write_shard(path: Path, ids: np.ndarray) -> None:
    """Write (N,) ids as a stored uint32 .npz, whole or not at all; its folder is made.

    Raises:
        DataError: The ids are no shard: not 1-D, not integers, empty, negative or over 32 bits.
    """
    check_ids_type(path, ids.shape, ids.dtype)
    content = _as_uint32(path, ids)
    with whole_file(path) as temporary, temporary.open("wb") as file:
        write_member(file, content)


def read_shard(path: Path) -> np.ndarray:
    """Return the ids of a shard: (N,) uint32, mapped read-only where the file allows.

    Only a stored array of uint32 is mapped; any other shard is copied whole into memory, so read
    large ones by `iter_shard`.

    Raises:
        DataError: The file is no shard, or is not whole; names the file and what is wrong.
    """
    if path.suffix == ".npz":
        member = find_member(path)
        if member.offset is not None and member.dtype == np.dtype("<u4"):
            return map_member(path, member)
    return np.concatenate(list(iter_shard(path, _CHUNK_IDS)))


def iter_shard(path: Path, chunk: int = _CHUNK_IDS) -> Iterator[np.ndarray]:
    """Yield the ids of a shard as uint32 arrays of at most `chunk`, in bounded memory.

    Raises:
        DataError: The file is no shard, or is not whole; names the file and what is wrong.
    """
    if path.suffix == ".parquet":
        chunks = iter_parquet_ids(path, chunk)
    else:
        chunks = iter_member(path, find_member(path), chunk)
    for ids in chunks:
        yield _as_uint32(path, ids)


def count_ids(path: Path) -> int:
    """Return how many ids a shard holds, from its headers where these tell.

    Raises:
        DataError: The file is no shard.
    """
    return count_parquet_ids(path) if path.suffix == ".parquet" else find_member(path).num_ids


def list_shards(folder: Path) -> list[str]:
    """Return all shards below a folder as sorted paths relative to it, with forward slashes.

    Raises:
        DataError: There is none, or two would have the same final name.
    """
    names = sorted(
        path.relative_to(folder).as_posix()
        for suffix in SUFFIXES
        for path in folder.glob(f"*/*/part_*{suffix}")
        if path.is_file()
    )
    if not names:
        must = "hold shards <lane>/<source>/part_*.npz or .parquet"
        raise DataError(folder, must, "none", "Name the folder above the lanes.")
    counts = Counter(map(final_name, names))
    twice = [name for name in names if counts[final_name(name)] > 1]
    if twice:
        must = "name each shard once, whatever its suffix"
        raise DataError(folder, must, ", ".join(twice), "Remove or rename one of them.")
    return names


def final_name(relative: str) -> str:
    """Return a shard's path in ids_final/: the same path with the suffix .npz."""
    return PurePosixPath(relative).with_suffix(".npz").as_posix()


def is_held_out(name: str, val_every: int) -> bool:
    """Tell whether the shard of this final name is held out: one in `val_every`, by its crc32."""
    return zlib.crc32(name.encode()) % val_every == 0


def _as_uint32(path: Path, ids: np.ndarray) -> np.ndarray:
    if ids.dtype.itemsize > 4 or ids.dtype.kind == "i":
        low, high = int(ids.min(initial=0)), int(ids.max(initial=0))
        if low < 0 or high > _MAX_ID:
            found = f"ids from {low} to {high}"
            raise DataError(path, "hold ids in [0, 2**32)", found, "Write it from valid ids.")
    return ids.astype("<u4", copy=False)
