"""Writing a shard whose length is not known before its end, in the memory of one chunk.

A zip member's header states its size and checksum, and the .npy header inside states its length.
Both have a fixed size here, so that they are left open and written last. The checksum covers the
.npy header as well; it is put together from the checksums of the parts, which other threads may
have computed.

The file is byte for byte what `shards.write_shard` writes: one stored uint32 array `ids` with its
data aligned to 64 bytes.

Source: PKWARE APPNOTE 4.3 and 4.5.3 (zip, zip64); numpy NEP 1 (npy format); zlib crc32_combine.
"""

import io
import struct
import zlib
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import numpy as np

from shadow_model.data.writing import whole_file

_NAME = b"ids.npy"
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s4B4H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR64 = struct.Struct("<4sIQI")
_SIZES64 = struct.Struct("<2H2Q")
_VERSION, _VERSION64 = 20, 45
_FULL = 0xFFFFFFFF
_LIMIT = (1 << 31) - 1  # from here on sizes and offsets stand in zip64 fields, as zipfile has it
_DATE = (1 << 5) | 1  # 1980-01-01: equal ids give equal files
_READABLE = 0o600 << 16
_PADDING = struct.pack("<HH", 0xD935, 3) + bytes(3)  # local header, name and extras: 64 bytes
_NPY_BYTES = 128
_DATA_OFFSET = 64 + _NPY_BYTES
_POLYNOMIAL = 0xEDB88320


class StreamingShard:
    """A shard being written, chunk by chunk; a context manager.

    It appears at its path when the block ends without an exception, unless nothing was appended:
    an empty shard is no shard.

    Args:
        path: Ends in .npz; its folder is made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stack = ExitStack()
        self._crc = 0
        self.num_ids = 0

    def __enter__(self) -> Self:
        self._file: IO[bytes] | None = None
        return self

    def append(self, ids: np.ndarray, crc: int | None = None) -> None:
        """Append ids.

        Args:
            ids: (N,) uint32, contiguous.
            crc: zlib.crc32 of their bytes, where it is known already.
        """
        if not len(ids):
            return
        if self._file is None:
            self._file = self._open()
        assert ids.dtype == np.dtype("<u4")
        self._file.write(ids.data)
        self._crc = combine_crc32(
            self._crc, zlib.crc32(ids.data) if crc is None else crc, ids.nbytes
        )
        self.num_ids += len(ids)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None and error is None:
            _finish(self._file, self.num_ids, self._crc)
        self._stack.__exit__(kind, error, trace)

    def _open(self) -> IO[bytes]:
        temporary = self._stack.enter_context(whole_file(self._path))
        file = self._stack.enter_context(temporary.open("wb"))
        file.write(bytes(_DATA_OFFSET))
        return file


def combine_crc32(first: int, second: int, second_bytes: int) -> int:
    """Return the crc32 of two texts put together, from theirs.

    Args:
        first: crc32 of the first.
        second: crc32 of the second.
        second_bytes: Length of the second.
    """
    return _multiply(_power_of_x(8 * second_bytes), first) ^ second


def _finish(file: IO[bytes], num_ids: int, data_crc: int) -> None:
    npy = _npy_header(num_ids)
    size = len(npy) + 4 * num_ids
    crc = combine_crc32(zlib.crc32(npy), data_crc, 4 * num_ids)
    file.write(_directory(crc, size, 64 + size))
    file.seek(0)
    file.write(_local_header(crc, size) + npy)


def _npy_header(num_ids: int) -> bytes:
    buffer = io.BytesIO()
    header = {"descr": "<u4", "fortran_order": False, "shape": (num_ids,)}
    np.lib.format.write_array_header_1_0(buffer, header)  # numpy leaves room for longer lengths
    assert len(buffer.getvalue()) == _NPY_BYTES
    return buffer.getvalue()


def _local_header(crc: int, size: int) -> bytes:
    extra = _PADDING + _SIZES64.pack(1, 16, size, size)
    fixed = (_VERSION64, 0, 0, 0, _DATE, crc, _FULL, _FULL, len(_NAME), len(extra))
    return _LOCAL.pack(b"PK\x03\x04", *fixed) + _NAME + extra


def _directory(crc: int, size: int, start: int) -> bytes:
    """Return the central directory, which begins at byte `start`, and the end records."""
    large = size > _LIMIT
    extra = (_SIZES64.pack(1, 16, size, size) if large else b"") + _PADDING
    shown = _FULL if large else size
    version = (_VERSION64, 3, _VERSION64, 0)  # 3: the system is Unix
    lengths = (len(_NAME), len(extra), 0, 0, 0)
    entry = _CENTRAL.pack(
        b"PK\x01\x02", *version, 0, 0, 0, _DATE, crc, shown, shown, *lengths, _READABLE, 0
    )
    entry += _NAME + extra
    return entry + _end(len(entry), start)


def _end(directory_bytes: int, start: int) -> bytes:
    if start <= _LIMIT:
        return _END.pack(b"PK\x05\x06", 0, 0, 1, 1, directory_bytes, start, 0)
    counts = (_VERSION64, _VERSION64, 0, 0, 1, 1, directory_bytes, start)
    record = _END64.pack(b"PK\x06\x06", _END64.size - 12, *counts)
    locator = _LOCATOR64.pack(b"PK\x06\x07", 0, start + directory_bytes, 1)
    return (
        record
        + locator
        + _END.pack(b"PK\x05\x06", 0, 0, 1, 1, directory_bytes, min(start, _FULL), 0)
    )


def _multiply(a: int, b: int) -> int:
    """Multiply polynomials over GF(2) modulo that of crc32; bit 31 is the constant term."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


@lru_cache(maxsize=4096)
def _power_of_x(exponent: int) -> int:
    """Return x**exponent in the same ring."""
    result = 1 << 31
    for k in range(exponent.bit_length()):
        if exponent >> k & 1:
            result = _multiply(result, _square_of_x(k))
    return result


@lru_cache(maxsize=64)
def _square_of_x(times: int) -> int:
    """Return x squared `times` times over: x**(2**times)."""
    if times == 0:
        return 1 << 30
    half = _square_of_x(times - 1)
    return _multiply(half, half)
