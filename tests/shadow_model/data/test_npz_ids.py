"""The ids of .npz shards: mapped, streamed, and every fault found."""

import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from shadow_model.data.npz_ids import find_member, iter_member, map_member, write_member
from shadow_model.errors import DataError

IDS = np.arange(5000, dtype=np.uint32) * 7


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "part_0.npz"


def test_a_written_member_is_what_numpy_reads_and_its_data_are_aligned(path: Path) -> None:
    with path.open("wb") as file:
        write_member(file, IDS)
    member = find_member(path)
    assert member.num_ids == len(IDS)
    assert member.offset is not None
    assert member.offset % 64 == 0
    assert np.array_equal(np.load(path)["ids"], IDS)
    assert zipfile.ZipFile(path).testzip() is None


def test_a_stored_member_of_numpy_is_mapped(path: Path) -> None:
    np.savez(path, other=np.zeros(3), ids=IDS.astype(np.int64))
    mapped = map_member(path, find_member(path))
    assert isinstance(mapped, np.memmap)
    assert mapped.dtype == np.int64
    assert np.array_equal(mapped, IDS)


def test_a_compressed_member_is_streamed_in_chunks(path: Path) -> None:
    np.savez_compressed(path, ids=IDS)
    member = find_member(path)
    assert member.offset is None
    chunks = list(iter_member(path, member, 999))
    assert [len(chunk) for chunk in chunks] == [999] * 5 + [5]
    assert np.array_equal(np.concatenate(chunks), IDS)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"tokens": IDS}, "named ids"),
        ({"ids": IDS.astype(np.float32)}, "float32"),
        ({"ids": IDS.reshape(50, 100)}, r"shape \(50, 100\)"),
        ({"ids": IDS[:0]}, "at least one id"),
        ({"ids": np.array(3)}, r"shape \(\)"),
    ],
)
def test_arrays_that_are_no_ids_are_refused(
    path: Path, arrays: dict[str, np.ndarray], said: str
) -> None:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=said) as error:
        find_member(path)
    assert str(path) in str(error.value)


def test_pickled_objects_are_refused_without_being_loaded(path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[type, tuple[str]]:
            return pytest.fail, ("unpickled",)  # type: ignore[return-value]

    np.savez(path, ids=np.array([Trap()], object))
    with pytest.raises(DataError, match="object"):
        find_member(path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("kept", [0, 10, 0.5, -1])
def test_a_truncated_file_is_refused(path: Path, save, kept: float) -> None:  # type: ignore[no-untyped-def]
    save(path, ids=IDS)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if kept == 0.5 else int(kept)])
    with pytest.raises(DataError, match="whole"):
        find_member(path)


def test_a_damaged_compressed_stream_is_refused(path: Path) -> None:
    np.savez_compressed(path, ids=np.random.default_rng(0).integers(0, 9999, 5000))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match="decompress"):
        list(iter_member(path, find_member(path), 1000))


def test_a_file_that_states_more_than_deflate_can_hold_is_refused(path: Path) -> None:
    np.savez_compressed(path, ids=np.zeros(100_000, np.uint32))
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02")
    content[at + 24 : at + 28] = struct.pack("<I", 0xFFFFFF00)  # its uncompressed size
    path.write_bytes(content)
    with pytest.raises(DataError, match="true size"):
        find_member(path)


def test_a_header_that_states_more_ids_than_there_are_is_refused(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive, archive.open("ids.npy", "w") as stream:
        header = {"descr": "<u4", "fortran_order": False, "shape": (1 << 40,)}
        np.lib.format.write_array_header_1_0(stream, header)
        stream.write(IDS.tobytes())
    with pytest.raises(DataError, match="as many bytes"):
        find_member(path)


def test_a_compression_that_cannot_be_bounded_is_refused(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("ids.npy", b"\0" * 1000)
    with pytest.raises(DataError, match="stored or deflated"):
        find_member(path)
