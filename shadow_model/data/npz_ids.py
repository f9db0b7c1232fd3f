"""The `ids` array inside an .npz file: mapped where it is stored, streamed where it is compressed.

A stored member lies in the file as it is in memory, so it is mapped at its offset and costs no
memory; numpy's own loader would copy it. Everything a file states is checked against its size
before it is believed, and pickle is never touched.

Source: PKWARE APPNOTE 4.3.7 (local file header); numpy NEP 1 (npy format).
"""

import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from shadow_model.errors import DataError

MEMBER = "ids.npy"
_FIX = "Write the shard again with numpy.savez(path, ids=array) from a 1-D array of token ids."
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_DEFLATE_MAX_RATIO = 1040  # deflate cannot reach 1:1033; a file that states more is lying
_ALIGN_BYTES = 64
_PADDING_TAG = 0xD935  # the extra field that Android's zipalign pads with


class Member(NamedTuple):
    """Where the ids are and what they are."""

    num_ids: int
    dtype: np.dtype
    offset: int | None
    """Byte offset in the file; None where the member is compressed."""


def find_member(path: Path) -> Member:
    """Read the headers of an .npz shard and check them.

    Raises:
        DataError: Not a whole zip, no `ids`, not a 1-D non-empty array of integers, or sizes that
            contradict each other.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            info = _member_info(path, archive)
            with archive.open(info) as stream:
                shape, dtype = _read_header(stream)
                header_bytes = stream.tell()
            offset = _data_offset(path, info) + header_bytes
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile, struct.error) as error:
        raise DataError(
            path, "be a whole .npz file", error or type(error).__name__, _FIX
        ) from error
    check_ids_type(path, shape, dtype)
    if header_bytes + shape[0] * dtype.itemsize != info.file_size:
        found = f"{info.file_size - header_bytes} bytes for {shape[0]} ids of {dtype}"
        raise DataError(path, "hold as many bytes as its header states", found, _FIX)
    stored = info.compress_type == zipfile.ZIP_STORED
    return Member(shape[0], dtype, offset if stored else None)


def map_member(path: Path, member: Member) -> np.ndarray:
    """Return the ids of a stored member, mapped read-only: (num_ids,) of the file's dtype."""
    assert member.offset is not None
    return np.memmap(path, member.dtype, "r", member.offset, (member.num_ids,))


def iter_member(path: Path, member: Member, chunk: int) -> Iterator[np.ndarray]:
    """Yield the ids of a member, at most `chunk` at a time, in the file's dtype.

    Raises:
        DataError: The compressed stream ends early, fails its checksum or does not decompress.
    """
    if member.offset is not None:
        mapped = map_member(path, member)
        for start in range(0, member.num_ids, chunk):
            yield mapped[start : start + chunk]
        return
    try:
        with zipfile.ZipFile(path) as archive, archive.open(MEMBER) as stream:
            _read_header(stream)
            for start in range(0, member.num_ids, chunk):
                size = min(chunk, member.num_ids - start) * member.dtype.itemsize
                yield np.frombuffer(_read_exactly(stream, size), member.dtype)
            stream.read(1)  # reaching the end is what compares the checksum
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(path, "decompress to the ids it states", error, _FIX) from error


def write_member(file: IO[bytes], ids: np.ndarray) -> None:
    """Write an .npz with one stored array `ids`, (N,) uint32, its data aligned to 64 bytes."""
    header = {"descr": "<u4", "fortran_order": False, "shape": ids.shape}
    info = zipfile.ZipInfo(MEMBER)  # its time is 1980 unless told: equal ids give equal files
    zip64_bytes, pad_header_bytes = 20, 4
    name_end = _LOCAL_HEADER.size + len(MEMBER) + zip64_bytes + pad_header_bytes
    padding = -name_end % _ALIGN_BYTES
    info.extra = struct.pack("<HH", _PADDING_TAG, padding) + bytes(padding)
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
        archive.open(info, "w", force_zip64=True) as stream,
    ):
        np.lib.format.write_array_header_1_0(stream, header)  # its length is a multiple of 64
        stream.write(np.ascontiguousarray(ids, "<u4").data)


def check_ids_type(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Refuse what cannot be a shard's ids: not 1-D, not integer, or empty."""
    if dtype.kind not in "iu":
        raise DataError(path, "hold integer ids", f"an array of {dtype}", _FIX)
    if len(shape) != 1:
        raise DataError(path, "hold a 1-D array of ids", f"shape {shape}", _FIX)
    if shape[0] == 0:
        raise DataError(path, "hold at least one id", "an empty array", "Delete the empty shard.")


def _member_info(path: Path, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    names = archive.namelist()
    if MEMBER not in names:
        raise DataError(path, "hold an array named ids", f"the members {names}", _FIX)
    info = archive.getinfo(MEMBER)
    if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        found = f"encryption or compression method {info.compress_type}"
        raise DataError(path, "be stored or deflated, as numpy writes it", found, _FIX)
    if info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
        found = f"{info.compress_size} bytes for {info.file_size}"
        raise DataError(path, "store its ids as they are", found, _FIX)
    if info.file_size > _DEFLATE_MAX_RATIO * max(info.compress_size, 1):
        found = f"{info.compress_size} bytes that claim to expand to {info.file_size}"
        raise DataError(path, "state its true size", found, _FIX)
    return info


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(stream)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"npy format version {version}")
    shape, _, dtype = readers[version](stream)
    return shape, dtype


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    with path.open("rb") as file:
        file.seek(info.header_offset)
        signature, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    if signature != b"PK\x03\x04":
        raise ValueError("no local file header where the directory points")
    return info.header_offset + _LOCAL_HEADER.size + int(name_bytes) + int(extra_bytes)


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    content = stream.read(size)
    if len(content) != size:
        raise EOFError(f"{len(content)} of {size} bytes before the end")
    return content
