"""The user's files: found in a stable order, read as strict UTF-8."""

from collections.abc import Collection, Iterator
from pathlib import Path

from shadow_model.errors import DataError
from shadow_model.reading import reading

_UTF8_FIX = "Convert the file to UTF-8, or leave it out."


def list_files(place: Path, suffixes: Collection[str]) -> list[Path]:
    """Return the files below a folder with one of these endings, sorted by relative path.

    Args:
        place: A folder, searched to its depth, or one file. Hidden files and folders are left out.
        suffixes: Endings in lower case, with their dot.

    Raises:
        DataError: The place is absent, or holds no such file.
    """
    wanted = " or ".join(sorted(suffixes))
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise DataError(place, "be a folder or a file", "nothing there", "Correct the path.")
    found = [
        path
        for path in place.rglob("*")
        if path.suffix.lower() in suffixes and not _hidden(path, place) and path.is_file()
    ]
    if not found:
        raise DataError(place, f"hold files ending in {wanted}", "none", "Name another folder.")
    return sorted(found, key=lambda path: path.relative_to(place).as_posix())


def relative_name(path: Path, place: Path) -> str:
    """Return a file's name below the place it was found in, with forward slashes."""
    return path.name if path == place else path.relative_to(place).as_posix()


def iter_file_text(path: Path, block_bytes: int) -> Iterator[str]:
    """Yield a file's text in blocks, cut after a blank line, else a line, else a character.

    Args:
        path: The file.
        block_bytes: Bytes of a block at most; a file that has no more is one block.

    Raises:
        DataError: The file cannot be read, or is not UTF-8 (with the first bad byte's offset).
    """
    with (
        reading(DataError, path, "be readable", "Check the file and its rights."),
        path.open("rb") as file,
    ):
        offset, rest = 0, b""
        while block := rest + file.read(block_bytes - len(rest)):
            end = len(block) if len(block) < block_bytes else _cut(block)
            yield _decode(path, block[:end], offset)
            offset, rest = offset + end, block[end:]


def read_text(path: Path) -> str:
    """Return a small file's text; DataError where it is not UTF-8."""
    return "".join(iter_file_text(path, 1 << 24))


def _cut(block: bytes) -> int:
    for mark in (b"\n\n", b"\n"):
        if (at := block.rfind(mark)) >= 0:
            return at + len(mark)
    end = len(block)
    for back in range(1, min(4, end)):  # a character has at most four bytes; do not cut it
        if block[end - back] & 0xC0 == 0xC0:
            return end - back
    return end


def _decode(path: Path, block: bytes, offset: int) -> str:
    try:
        return block.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{block[error.start]:02x} at offset {offset + error.start}"
        raise DataError(path, "be UTF-8 text", found, _UTF8_FIX) from error


def _hidden(path: Path, place: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(place).parts)
