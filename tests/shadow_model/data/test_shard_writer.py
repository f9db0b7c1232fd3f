import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadow_model.data import shard_writer
from shadow_model.data.shard_writer import StreamingShard, combine_crc32
from shadow_model.data.shards import read_shard, write_shard


def stream(path: Path, ids: np.ndarray, step: int) -> None:
    with StreamingShard(path) as shard:
        for start in range(0, len(ids), step):
            shard.append(ids[start : start + step])


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_checksums_of_parts_make_that_of_the_whole(first: bytes, second: bytes) -> None:
    combined = combine_crc32(zlib.crc32(first), zlib.crc32(second), len(second))
    assert combined == zlib.crc32(first + second)


@pytest.mark.parametrize("size", [1, 999, 100_000])
@pytest.mark.parametrize("step", [1000, 4096])
def test_bytes_equal_those_of_a_shard_written_at_once(tmp_path: Path, size: int, step: int) -> None:
    ids = np.random.default_rng(size).integers(0, 1 << 32, size, np.uint32)
    write_shard(tmp_path / "once.npz", ids)
    stream(tmp_path / "streamed.npz", ids, step)
    assert (tmp_path / "streamed.npz").read_bytes() == (tmp_path / "once.npz").read_bytes()


def test_numpy_and_zipfile_read_it_and_its_checksum_holds(tmp_path: Path) -> None:
    ids = np.arange(5000, dtype=np.uint32)
    stream(tmp_path / "a.npz", ids, 777)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert file.files == ["ids"]
        np.testing.assert_array_equal(file["ids"], ids)
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert archive.testzip() is None
    mapped = read_shard(tmp_path / "a.npz")
    assert isinstance(mapped, np.memmap)
    assert mapped.flags.aligned


def test_sizes_that_need_zip64_fields_are_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_writer, "_LIMIT", 100)  # as if 400 bytes were over 2 GiB
    ids = np.arange(100, dtype=np.uint32)
    stream(tmp_path / "a.npz", ids, 33)
    assert b"PK\x06\x06" in (tmp_path / "a.npz").read_bytes()
    with np.load(tmp_path / "a.npz") as file:
        np.testing.assert_array_equal(file["ids"], ids)


def test_a_checksum_computed_elsewhere_is_used(tmp_path: Path) -> None:
    ids = np.arange(10, dtype=np.uint32)
    with StreamingShard(tmp_path / "a.npz") as shard:
        shard.append(ids, zlib.crc32(ids) ^ 1)
    with pytest.raises(zipfile.BadZipFile, match="CRC"), np.load(tmp_path / "a.npz") as file:
        file["ids"]


def test_nothing_appended_writes_nothing(tmp_path: Path) -> None:
    with StreamingShard(tmp_path / "lane" / "a.npz") as shard:
        shard.append(np.empty(0, np.uint32))
    assert not (tmp_path / "lane").exists()


def test_an_exception_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail_half_way() -> None:
        with StreamingShard(tmp_path / "a.npz") as shard:
            shard.append(np.arange(10, dtype=np.uint32))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_half_way()
    assert list(tmp_path.iterdir()) == []
