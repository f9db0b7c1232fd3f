"""The `ids` column of a Parquet shard: lists with one document a row, or one flat column.

Read by batches whose size follows from the file's own counts, so that memory is bounded by a batch
and a row group's pages, never by the file.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shadow_model.data.npz_ids import check_ids_type
from shadow_model.errors import DataError
from shadow_model.reading import reading

COLUMN = "ids"
_CHUNK_IDS = 1 << 20
_MAX_DOCUMENT_IDS = 1 << 26
"""A few bytes of run lengths may state any number of ids in one row, which is read whole."""
_FIX = "Write a column ids of list<uint32> (one document a row) or of uint32."


def count_parquet_ids(path: Path) -> int:
    """Return how many ids the file holds; from its metadata, where that tells.

    Raises:
        DataError: Not a Parquet file, no such column, not integers, or none at all.
    """
    with parquet_file(path, _FIX) as file:
        _check(path, file)
        columns = _column_chunks(file)
        if all(c.statistics is not None and c.statistics.has_null_count for c in columns):
            # an empty document takes the place of one value and counts as a null there
            return sum(int(c.num_values - c.statistics.null_count) for c in columns)
    return sum(len(ids) for ids in iter_parquet_ids(path, _CHUNK_IDS))


def iter_parquet_ids(path: Path, chunk: int) -> Iterator[np.ndarray]:
    """Yield the ids of a Parquet shard, at most `chunk` at a time, in the file's integer type.

    Raises:
        DataError: As `count_parquet_ids`; or a null, or a page that does not decode.
    """
    with parquet_file(path, _FIX) as file:
        values = _check(path, file)
        rows = max(1, chunk * file.metadata.num_rows // values)
        for batch in file.iter_batches(batch_size=min(rows, chunk), columns=[COLUMN]):
            ids = _flat(path, batch.column(0))
            for start in range(0, len(ids), chunk):
                yield ids[start : start + chunk]


@contextmanager
def parquet_file(
    path: Path, fix: str, read_dictionary: Sequence[str] | None = None
) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; what Arrow raises inside the block becomes a DataError that names it.

    Args:
        fix: What the user can do.
        read_dictionary: Columns whose repeated values stay one value in memory.
    """
    with (
        reading(DataError, path, "be a whole Parquet file", fix, pa.ArrowException),
        pq.ParquetFile(
            path, pre_buffer=False, memory_map=True, read_dictionary=read_dictionary
        ) as file,
    ):
        yield file


def _check(path: Path, file: pq.ParquetFile) -> int:
    """Check the column's type and return the number of its values, nulls and empties included."""
    schema = file.schema_arrow
    if COLUMN not in schema.names:
        raise DataError(path, "have a column ids", f"the columns {schema.names}", _FIX)
    kind = schema.field(COLUMN).type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    if not pa.types.is_integer(kind):
        raise DataError(path, "hold integer ids", f"a column of {schema.field(COLUMN).type}", _FIX)
    values = sum(int(chunk.num_values) for chunk in _column_chunks(file))
    check_ids_type(path, (values,), np.dtype(kind.to_pandas_dtype()))
    nested = not pa.types.is_integer(schema.field(COLUMN).type)
    if nested and values > _MAX_DOCUMENT_IDS * file.metadata.num_rows:
        found = f"{values:,} in {file.metadata.num_rows} rows"
        raise DataError(path, f"have at most {_MAX_DOCUMENT_IDS:,} ids a row", found, _FIX)
    return values


def _column_chunks(file: pq.ParquetFile) -> list[pq.ColumnChunkMetaData]:
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    leaf = next(i for i in range(len(file.schema)) if _is_ids(file.schema.column(i).path))
    return [group.column(leaf) for group in groups]


def _is_ids(leaf_path: str) -> bool:
    return leaf_path == COLUMN or leaf_path.startswith(f"{COLUMN}.")


def _flat(path: Path, column: pa.Array) -> np.ndarray:
    nested = not pa.types.is_integer(column.type)
    values = column.flatten() if nested else column
    if column.null_count or values.null_count:
        raise DataError(path, "have no null in ids", "a null", _FIX)
    flat: np.ndarray = values.to_numpy(zero_copy_only=False)
    return flat
