"""The `ids` array inside an .npz file: mapped where it is stored, streamed where it is compressed.

A stored member lies in the file as it is in memory, so it is mapped at its offset and costs no
memory; numpy's own loader would copy it.

Source: PKWARE APPNOTE 4.3.7 (local file header); numpy NEP 1 (npy format).
"""

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from shadow_model.arrays import open_archive
from shadow_model.errors import DataError
from shadow_model.reading import reading

MEMBER = "ids.npy"
_FIX = "Write the shard again with numpy.savez(path, ids=array) from a 1-D array of token ids."
_LOCAL_HEADER_BYTES = 30
_ALIGN_BYTES = 64
_PADDING_TAG = 0xD935  # the extra field that Android's zipalign pads with


class Member(NamedTuple):
    """Where the ids are and what they are."""

    num_ids: int
    dtype: np.dtype
    header_bytes: int
    offset: int | None
    """Byte offset in the file; None where the member is compressed."""


def find_member(path: Path) -> Member:
    """Read the headers of an .npz shard and check them.

    Raises:
        DataError: Not a whole zip, no `ids`, not a 1-D non-empty array of integers, or sizes that
            contradict each other.
    """
    with (
        reading(DataError, path, "be a whole .npz file with an array named ids", _FIX),
        open_archive(path, ("ids",)) as archive,
    ):
        header, offset = archive.members["ids"].header, archive.members["ids"].offset
    check_ids_type(path, header.shape, header.dtype)
    return Member(header.shape[0], header.dtype, header.num_bytes, offset)


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
    with (
        reading(DataError, path, "decompress to the ids it states", _FIX),
        zipfile.ZipFile(path) as archive,
        archive.open(MEMBER) as stream,
    ):
        stream.read(member.header_bytes)
        for start in range(0, member.num_ids, chunk):
            size = min(chunk, member.num_ids - start) * member.dtype.itemsize
            yield np.frombuffer(_read_exactly(stream, size), member.dtype)
        stream.read(1)  # reaching the end is what compares the checksum


def write_member(file: IO[bytes], ids: np.ndarray) -> None:
    """Write an .npz with one stored array `ids`, (N,) uint32, its data aligned to 64 bytes."""
    header = {"descr": "<u4", "fortran_order": False, "shape": ids.shape}
    info = zipfile.ZipInfo(MEMBER)  # its time is 1980 unless told: equal ids give equal files
    zip64_bytes, pad_header_bytes = 20, 4
    name_end = _LOCAL_HEADER_BYTES + len(MEMBER) + zip64_bytes + pad_header_bytes
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


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    content = stream.read(size)
    if len(content) != size:
        raise EOFError(f"{len(content)} of {size} bytes before the end")
    return content
