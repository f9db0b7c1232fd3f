"""Arrays in .npy and .npz files of others: no pickle, and nothing believed that the bytes deny.

numpy reserves what a header states before it looks for the bytes, so that a file of a hundred bytes
may ask for terabytes. Here headers are compared with the size of the file, or with what a zip
states of a member (which deflate bounds), before memory is reserved; a reader that knows its shapes
looks at the headers first. Everything raises ValueError or what `reading` knows.

Source: numpy NEP 1 (npy format); PKWARE APPNOTE 4.3.7 (local file header).
"""

import ast
import math
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, NamedTuple

import numpy as np

from shadow_model.reading import DAMAGE, reason

_MAX_HEADER_BYTES = 10_000  # numpy's own limit
_DEFLATE_MAX_RATIO = 1040  # deflate cannot reach 1:1033; a file that states more is lying
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_LENGTHS = {(1, 0): struct.Struct("<H"), (2, 0): struct.Struct("<I")}
_CHUNK_BYTES = 1 << 20


class Header(NamedTuple):
    """What an array's header states."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran_order: bool
    num_bytes: int
    """Of the header itself, magic included: the data begin there."""

    @property
    def data_bytes(self) -> int:
        """Bytes that the data take."""
        return math.prod(self.shape) * self.dtype.itemsize


class Member(NamedTuple):
    """An array of an archive that was found sound but not read."""

    info: zipfile.ZipInfo
    header: Header
    offset: int | None
    """Byte offset of its data in the file; None where the member is compressed."""


class Archive(NamedTuple):
    """An open .npz."""

    file: zipfile.ZipFile
    members: Mapping[str, Member]

    def read(self, name: str) -> np.ndarray:
        """Return one array, read chunk by chunk into the memory that its header states."""
        member = self.members[name]
        with self.file.open(member.info) as stream:
            stream.read(member.header.num_bytes)
            return _read_data(stream, member.header)


@contextmanager
def open_archive(path: Path, names: tuple[str, ...]) -> Iterator[Archive]:
    """Open an .npz and read the headers of some of its arrays.

    Args:
        names: Arrays that must be there, without the ending .npy; others are not looked at.

    Raises:
        ValueError: It is no zip, lacks an array, or a member contradicts itself.
    """
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        there = set(archive.namelist())
        missing = [name for name in names if f"{name}.npy" not in there]
        if missing:
            raise ValueError(f"no arrays {missing} among {sorted(there)}")
        yield Archive(archive, {name: _member(file, archive, f"{name}.npy") for name in names})


def read_npy(path: Path) -> np.ndarray:
    """Return the array of an .npy file.

    Raises:
        ValueError: It is no .npy, holds objects, or its size is not what its header states.
    """
    with path.open("rb") as file:
        header = read_header(file)
        size = os.fstat(file.fileno()).st_size - header.num_bytes
        _check_size(header, size)
        return _read_data(file, header)


def read_header(stream: IO[bytes]) -> Header:
    """Read the header of an array from its first byte on; ValueError where it is none."""
    start = stream.read(len(np.lib.format.MAGIC_PREFIX) + 2)
    version = (start[-2], start[-1]) if start.startswith(np.lib.format.MAGIC_PREFIX) else None
    if version not in _LENGTHS:
        raise ValueError(f"it begins with {start!r}, not as an array of numpy, version 1 or 2")
    length = stream.read(_LENGTHS[version].size)
    (size,) = _LENGTHS[version].unpack(length)
    if size > _MAX_HEADER_BYTES:
        raise ValueError(f"its header states {size} bytes for itself")
    text = stream.read(size)
    try:
        said = ast.literal_eval(text.decode("latin-1"))
        shape, fortran, dtype = tuple(said["shape"]), said["fortran_order"], said["descr"]
        dtype = np.lib.format.descr_to_dtype(dtype)
    except DAMAGE as error:
        raise ValueError(f"its header is no description of an array: {reason(error)}") from error
    if dtype.hasobject:
        raise ValueError(f"it holds Python objects ({dtype}), which are never loaded")
    if any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"its header states the shape {shape}")
    return Header(shape, dtype, bool(fortran), len(start) + len(length) + size)


def _member(file: IO[bytes], archive: zipfile.ZipFile, name: str) -> Member:
    info = archive.getinfo(name)
    stored = info.compress_type == zipfile.ZIP_STORED
    if info.flag_bits & 1 or not (stored or info.compress_type == zipfile.ZIP_DEFLATED):
        raise ValueError(
            f"{name} has encryption or compression method {info.compress_type}; "
            "numpy writes it stored or deflated"
        )
    if stored and info.compress_size != info.file_size:
        raise ValueError(f"{name} has {info.compress_size} bytes for {info.file_size}, stored")
    if info.file_size > _DEFLATE_MAX_RATIO * max(info.compress_size, 1):
        raise ValueError(
            f"{name} has {info.compress_size} bytes that claim to expand to {info.file_size}, "
            "so it cannot state its true size"
        )
    with archive.open(info) as stream:
        header = read_header(stream)
    _check_size(header, info.file_size - header.num_bytes)
    begin = _data_offset(file, info)
    if stored and begin + info.file_size > os.fstat(file.fileno()).st_size:
        raise ValueError(f"{name} states {info.file_size} bytes, more than are left")
    return Member(info, header, begin + header.num_bytes if stored else None)


def _check_size(header: Header, found: int) -> None:
    if header.data_bytes != found:
        raise ValueError(
            f"{found} bytes of data, not as many bytes as its header states: {header.data_bytes} "
            f"for shape {header.shape} of {header.dtype}"
        )


def _data_offset(file: IO[bytes], info: zipfile.ZipInfo) -> int:
    file.seek(info.header_offset)
    signature, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    if signature != b"PK\x03\x04":
        raise ValueError("no local file header where the directory points")
    return info.header_offset + _LOCAL_HEADER.size + int(name_bytes) + int(extra_bytes)


def _read_data(stream: IO[bytes], header: Header) -> np.ndarray:
    content = np.empty(header.data_bytes, np.uint8)
    for start in range(0, len(content), _CHUNK_BYTES):
        part = stream.read(min(_CHUNK_BYTES, len(content) - start))
        content[start : start + len(part)] = np.frombuffer(part, np.uint8)
        if start + len(part) < min(start + _CHUNK_BYTES, len(content)):
            raise EOFError(f"{start + len(part)} of {len(content)} bytes before the end")
    stream.read(1)  # reaching the end is what compares a member's checksum
    order: Literal["C", "F"] = "F" if header.fortran_order else "C"
    return content.view(header.dtype).reshape(header.shape, order=order)
