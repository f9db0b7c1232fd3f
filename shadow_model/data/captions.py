"""Captions of the user's pictures, sounds and clips.

In this order: a text file of the same name beside the file, an entry of a `metadata.jsonl` or
`metadata.csv` in its folder or one above (as Hub datasets have them), else the words of its name.
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shadow_model.data.files import read_text
from shadow_model.errors import DataError
from shadow_model.reading import parse_json, reading

METADATA_NAMES = ("metadata.jsonl", "metadata.csv")
_FILE_FIELD = "file_name"
_MAX_CAPTION_BYTES = 1 << 20
_WORD_BREAK = re.compile(r"(?<=[a-z])(?=[A-Z])|[_\W]+")


class Captions:
    """What is said of each file of a folder.

    Args:
        place: The folder, or a single file.
        column: Field of the metadata that holds the caption.

    Raises:
        DataError: A metadata file cannot be read, or lacks a field.
    """

    def __init__(self, place: Path, column: str) -> None:
        self._said: dict[Path, str] = {}
        for path in metadata_files(place):
            for name, caption in _entries(path, column):
                self._said[path.parent / name] = caption

    def of(self, path: Path) -> str:
        """Return the caption of a file, or of a folder of frames."""
        beside = sidecar(path)
        if beside.is_file():
            return _short_text(beside).strip()
        return self._said.get(path) or words_of_name(path)


def metadata_files(place: Path) -> list[Path]:
    """Return the metadata files of a folder and of those below it, sorted."""
    if not place.is_dir():
        return []
    return sorted(path for name in METADATA_NAMES for path in place.rglob(name))


def sidecar(path: Path) -> Path:
    """Return where the text file beside a media file would lie."""
    return path.with_suffix(".txt")


def words_of_name(path: Path) -> str:
    """Return a file's name as words: `red_fox-02.png` -> `red fox`; digits alone stay."""
    words = " ".join(word for word in _WORD_BREAK.split(path.stem) if word)
    return re.sub(r"[\s\d]+$", "", words) or words or path.stem


def _entries(path: Path, column: str) -> Iterator[tuple[str, str]]:
    text = read_text(path)
    rows = _json_rows(path, text) if path.suffix == ".jsonl" else _csv_rows(path, text)
    for number, row in enumerate(rows, 1):
        missing = [name for name in (_FILE_FIELD, column) if not isinstance(row.get(name), str)]
        if missing:
            must = f"have the fields {_FILE_FIELD} and {column} in entry {number}"
            raise DataError(path, must, f"the fields {[*row]}", "Set caption_column.")
        yield row[_FILE_FIELD], row[column].strip()


def _short_text(path: Path) -> str:
    """Read the text beside a file: a caption, not a book that happens to have its name."""
    if (size := path.stat().st_size) > _MAX_CAPTION_BYTES:
        must = f"be a caption of at most {_MAX_CAPTION_BYTES:,} bytes"
        raise DataError(path, must, f"{size:,} bytes", "Shorten it, or rename it.")
    return read_text(path)


def _csv_rows(path: Path, text: str) -> Iterator[dict[str, Any]]:
    with reading(DataError, path, "be a CSV with a heading", "Correct it."):
        yield from csv.DictReader(text.splitlines())


def _json_rows(path: Path, text: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        with reading(DataError, path, f"be JSON in line {number}", "Correct it."):
            row = parse_json(line)
        if not isinstance(row, dict):
            raise DataError(path, f"hold an object in line {number}", line[:80], "Correct it.")
        yield row
