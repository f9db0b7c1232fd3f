"""Shards: written, read, named and split."""

import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadow_model.data.shards import (
    count_ids,
    final_name,
    is_held_out,
    iter_shard,
    list_shards,
    read_shard,
    write_shard,
)
from shadow_model.errors import DataError

IDS = np.array([0, 5, 2**32 - 1, 7], np.uint32)


def test_a_shard_comes_back_mapped_and_read_only(tmp_path: Path) -> None:
    path = tmp_path / "lane" / "source" / "part_0.npz"
    write_shard(path, IDS)
    ids = read_shard(path)
    assert isinstance(ids, np.memmap)
    assert ids.dtype == np.uint32
    assert not ids.flags.writeable
    assert np.array_equal(ids, IDS)
    assert count_ids(path) == 4
    assert [p.name for p in path.parent.iterdir()] == ["part_0.npz"]


def test_equal_ids_of_any_type_give_equal_bytes(tmp_path: Path) -> None:
    for name, dtype in (("a", np.int64), ("b", np.uint32), ("c", ">u4")):
        write_shard(tmp_path / f"{name}.npz", IDS.astype(dtype))
    contents = {path.read_bytes() for path in tmp_path.iterdir()}
    assert len(contents) == 1


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, ">i4", np.int64, np.uint64])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_any_integer_type_is_read_as_uint32(tmp_path: Path, dtype, save) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "part_0.npz"
    save(path, ids=np.arange(100).astype(dtype))
    assert read_shard(path).dtype == np.uint32
    assert np.array_equal(read_shard(path), np.arange(100))


def test_parquet_shards_are_read(tmp_path: Path) -> None:
    path = tmp_path / "part_0.parquet"
    pq.write_table(pa.table({"ids": pa.array([[1, 2], [3]], pa.list_(pa.uint32()))}), path)
    assert read_shard(path).tolist() == [1, 2, 3]
    assert count_ids(path) == 3


@pytest.mark.parametrize(
    ("ids", "said"), [([3, -1], "ids from -1 to 3"), ([0, 2**32], "from 0 to 4294967296")]
)
def test_ids_beyond_32_bits_are_refused(tmp_path: Path, ids: list[int], said: str) -> None:
    npz, parquet = tmp_path / "part_0.npz", tmp_path / "part_1.parquet"
    np.savez(npz, ids=np.array(ids))
    pq.write_table(pa.table({"ids": ids}), parquet)
    for path in (npz, parquet):
        with pytest.raises(DataError, match=said) as error:
            list(iter_shard(path))
        assert str(path) in str(error.value)


@pytest.mark.parametrize(
    "ids", [np.array([-1]), np.array([0.5]), np.zeros((2, 2), int), np.array([], int)]
)
def test_what_is_no_shard_is_not_written(tmp_path: Path, ids: np.ndarray) -> None:
    with pytest.raises(DataError):
        write_shard(tmp_path / "part_0.npz", ids)
    assert not list(tmp_path.iterdir())


def test_shards_are_listed_by_relative_path(tmp_path: Path) -> None:
    names = ["b/s/part_0.npz", "a/s/part_1.parquet", "a/s/part_0.npz", "a/s-t/part_0.npz"]
    for name in (*names, "a/s/other.npz", "a/part_0.npz", "a/s/deep/part_0.npz"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert list_shards(tmp_path) == sorted(names)


def test_a_folder_without_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="part_"):
        list_shards(tmp_path)


def test_two_shards_of_one_final_name_are_refused(tmp_path: Path) -> None:
    for suffix in ("npz", "parquet"):
        path = tmp_path / f"a/s/part_0.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with pytest.raises(DataError, match="once"):
        list_shards(tmp_path)


def test_the_split_hashes_the_final_name() -> None:
    assert final_name("lane/source/part_00003.parquet") == "lane/source/part_00003.npz"
    names = [f"lane/source/part_{i:05d}.npz" for i in range(1000)]
    held = [name for name in names if is_held_out(name, 10)]
    assert held == [name for name in names if zlib.crc32(name.encode()) % 10 == 0]
    assert 70 < len(held) < 130  # 100 expected, standard deviation 9.5


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1), st.integers(1, 7))
def test_chunks_are_the_shard(
    tmp_path_factory: pytest.TempPathFactory, ids: list[int], chunk: int
) -> None:
    path = tmp_path_factory.mktemp("shard") / "part_0.npz"
    write_shard(path, np.array(ids))
    chunks = list(iter_shard(path, chunk))
    assert max(map(len, chunks)) <= chunk
    assert np.concatenate(chunks).tolist() == ids
