"""The ids of Parquet shards."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shadow_model.data.parquet_ids import count_parquet_ids, iter_parquet_ids
from shadow_model.errors import DataError

DOCUMENTS = [[1, 2, 3], [], [4], [5, 6, 7, 8, 9], []]
FLAT = [1, 2, 3, 4, 5, 6, 7, 8, 9]


def write(path: Path, column: pa.Array, name: str = "ids", **options: object) -> Path:
    pq.write_table(pa.table({"other": ["x"] * len(column), name: column}), path, **options)
    return path


@pytest.mark.parametrize("kind", [pa.list_(pa.uint32()), pa.large_list(pa.int64())])
@pytest.mark.parametrize("statistics", [True, False])
def test_documents_are_read_as_one_stream(
    tmp_path: Path, kind: pa.DataType, statistics: bool
) -> None:
    column = pa.array(DOCUMENTS, kind)
    path = write(tmp_path / "a.parquet", column, row_group_size=2, write_statistics=statistics)
    assert count_parquet_ids(path) == len(FLAT)
    chunks = list(iter_parquet_ids(path, 2))
    assert max(map(len, chunks)) <= 2
    assert np.concatenate(chunks).tolist() == FLAT


def test_a_flat_column_is_read_in_chunks(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.array(FLAT, pa.uint32()), row_group_size=4)
    assert count_parquet_ids(path) == len(FLAT)
    assert np.concatenate(list(iter_parquet_ids(path, 3))).tolist() == FLAT


@pytest.mark.parametrize(
    ("column", "name", "said"),
    [
        (pa.array(FLAT), "tokens", "column ids"),
        (pa.array([1.0, 2.0]), "ids", "double"),
        (pa.array([[1.0]]), "ids", "double"),
        (pa.array([], pa.uint32()), "ids", "at least one"),
        (pa.array([1, None], pa.uint32()), "ids", "null"),
        (pa.array([[1], None], pa.list_(pa.uint32())), "ids", "null"),
    ],
)
def test_columns_that_are_no_ids_are_refused(
    tmp_path: Path, column: pa.Array, name: str, said: str
) -> None:
    path = write(tmp_path / "a.parquet", column, name)
    with pytest.raises(DataError, match=said) as error:
        list(iter_parquet_ids(path, 4))
    assert str(path) in str(error.value)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.array(FLAT))
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DataError, match="whole Parquet"):
        count_parquet_ids(path)
