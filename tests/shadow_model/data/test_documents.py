"""Documents: streamed from files and Parquet, limited, without repetitions."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shadow_model.data.documents import TextFilter, iter_parquet_texts
from shadow_model.data.inputs import SourceInput
from shadow_model.errors import DataError


def source(path: Path, kind: str = "text", **fields: Any) -> SourceInput:
    return SourceInput.parse({"name": "mine", "kind": kind, "path": path, **fields}, "test")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, text in enumerate(["first", "second", "first", " \n", "third"]):
        (tmp_path / f"{number}.txt").write_text(text)
    return tmp_path


def test_files_are_documents_and_repetitions_are_left_out(folder: Path) -> None:
    texts = TextFilter(source(folder), deduplicate=True)
    for _ in range(2):  # a second reading gives the same
        assert list(texts) == ["first", "second", "third"]
        assert (texts.documents, texts.bytes, texts.empty, texts.duplicates) == (3, 16, 1, 1)


def test_embedded_text_is_the_same_when_read_again() -> None:
    embedded = SourceInput(name="n", kind="demo_text", packages=("networkx",), max_items=50)
    texts = TextFilter(embedded, deduplicate=True)
    assert list(texts) == list(texts)
    assert texts.documents == 50
    assert texts.bytes == sum(len(text.encode()) for text in texts)


def test_repetitions_stay_where_the_user_says_so(folder: Path) -> None:
    texts = TextFilter(source(folder), deduplicate=False)
    assert list(texts) == ["first", "second", "first", "third"]


def test_limits_end_the_stream(folder: Path) -> None:
    assert list(TextFilter(source(folder, max_items=2), True)) == ["first", "second"]
    (folder / "0.txt").write_text("x" * 1020)
    assert len(list(TextFilter(source(folder, max_bytes=1024), True))) == 1


def test_a_long_file_becomes_several_documents(tmp_path: Path) -> None:
    lines = "".join(f"line {number}\n" for number in range(500))
    (tmp_path / "a.txt").write_text(lines)
    texts = list(TextFilter(source(tmp_path, document_bytes=1024), True))
    assert len(texts) > 1
    assert "".join(texts) == lines


def test_no_document_at_all_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n")
    with pytest.raises(DataError, match="1 empty"):
        list(TextFilter(source(tmp_path), True))


def test_parquet_rows_are_documents(tmp_path: Path) -> None:
    for name, kind in (("b", pa.large_string()), ("a", pa.string())):
        column = pa.array([f"{name} 1", None, f"{name} 2"], kind)
        pq.write_table(pa.table({"id": [1, 2, 3], "body": column}), tmp_path / f"{name}.parquet")
    texts = TextFilter(source(tmp_path, "parquet", text_column="body"), True)
    assert list(texts) == ["a 1", "a 2", "b 1", "b 2"]
    assert texts.empty == 2


def test_an_absent_column_is_refused_with_those_there_are(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1], "body": ["x"]}), path)
    with pytest.raises(DataError, match="the columns id, body"):
        list(iter_parquet_texts(path, "text"))


def test_a_column_of_numbers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [1]}), path)
    with pytest.raises(DataError, match="int64"):
        list(iter_parquet_texts(path, "text"))


def test_a_row_that_is_no_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 1, 3)))
    column = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ab\xff")])
    pq.write_table(pa.table({"text": column}), path)
    with pytest.raises(DataError, match="0xff in row 1"):
        list(iter_parquet_texts(path, "text"))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(DataError, match="whole Parquet"):
        list(iter_parquet_texts(path, "text"))
