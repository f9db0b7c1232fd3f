"""Documents of text, streamed one by one from the embedded data, text files or Parquet files."""

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa

from shadow_model.data.demo_text import demo_texts
from shadow_model.data.files import iter_file_text, list_files
from shadow_model.data.inputs import SourceInput
from shadow_model.data.parquet_ids import parquet_file
from shadow_model.errors import DataError

_BATCH_ROWS = 1024
PARQUET_SUFFIXES = frozenset({".parquet"})


class TextFilter:
    """Takes documents up to an input's limits, and counts those that it leaves out.

    Attributes:
        empty: Documents without a sign that prints.
        duplicates: Documents seen before.
    """

    def __init__(self, source: SourceInput, deduplicate: bool) -> None:
        self._source, self._deduplicate = source, deduplicate
        self._seen: set[int] = set()
        self._kept: list[str] = []
        self.documents = self.bytes = self.empty = self.duplicates = 0

    def __iter__(self) -> Iterator[str]:
        """Yield the input's documents; every iteration starts anew.

        Raises:
            DataError: A file cannot be read as what it should be, or no document is left.
        """
        if self._kept:
            yield from self._kept
            return
        read = list[str]()
        for text in self._read():
            if self._source.kind == "demo_text":  # small, and slow to parse a second time
                read.append(text)
            yield text
        self._kept = read

    def _read(self) -> Iterator[str]:
        self._seen.clear()
        self.documents = self.bytes = self.empty = self.duplicates = 0
        limit, most = self._source.max_bytes, self._source.max_items
        for text in read_documents(self._source):
            if not self._is_new(text):
                continue
            size = len(text.encode())
            if (limit and self.bytes + size > limit) or (most and self.documents == most):
                break
            self.documents, self.bytes = self.documents + 1, self.bytes + size
            yield text
        if not self.documents:
            where = self._source.path or self._source.name
            found = f"none; {self.empty} empty ones, and max_bytes = {limit}"
            raise DataError(where, "hold documents of text", found, "Name another place.")

    def _is_new(self, text: str) -> bool:
        if not text.strip():
            self.empty += 1
            return False
        if not self._deduplicate:
            return True
        # an embedded document begins with a name; what is under it must not repeat
        body = text.partition("\n")[2] if self._source.kind == "demo_text" else text
        digest = int.from_bytes(blake2b(body.encode(), digest_size=8).digest())
        if digest in self._seen:
            self.duplicates += 1
            return False
        self._seen.add(digest)
        return True


def read_documents(source: SourceInput) -> Iterator[str]:
    """Yield an input's documents in its stable order, empty ones and repetitions included.

    Raises:
        DataError: A file is not UTF-8, not Parquet, or lacks the text column.
    """
    if source.kind == "demo_text":
        yield from demo_texts(source.packages)
    elif source.kind == "parquet":
        for path in list_files(source.folder, PARQUET_SUFFIXES):
            yield from iter_parquet_texts(path, source.text_column)
    else:
        for path in list_files(source.folder, source.suffixes):
            yield from iter_file_text(path, source.document_bytes)


def iter_parquet_texts(path: Path, column: str) -> Iterator[str]:
    """Yield the texts of a Parquet column row by row, a null as an empty text, in bounded memory.

    Raises:
        DataError: The file is no whole Parquet file, has no such column, or the column is no text.
    """
    fix = "Write the file again, or leave it out."
    with parquet_file(path, fix) as file:
        _check_column(path, file.schema_arrow, column)
    # a dictionary, as in the file: there a long text may stand in each of a million rows
    with parquet_file(path, fix, [column]) as file:
        batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=[column])
        values = (value for batch in batches for value in batch.column(0))
        for row, value in enumerate(values):
            yield _text(path, row, value) or ""


def _text(path: Path, row: int, value: pa.Scalar) -> str | None:
    try:
        text: str | None = value.as_py()
        return text
    except UnicodeDecodeError as error:
        found = f"byte 0x{error.object[error.start]:02x} in row {row}"
        raise DataError(path, "hold UTF-8 text", found, "Convert the column to UTF-8.") from error


def _check_column(path: Path, schema: pa.Schema, column: str) -> None:
    if column not in schema.names:
        found = f"the columns {', '.join(schema.names)}"
        raise DataError(path, f"have a column {column!r}", found, "Set text_column.")
    kind = schema.field(column).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise DataError(path, f"hold text in column {column!r}", kind, "Set text_column.")
