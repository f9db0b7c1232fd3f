"""Shards of ids, their layout and tokenizers: damaged, foreign, oversized and hostile files."""

import io
import json
import re
import struct
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models

from shadow_model.data.documents import iter_parquet_texts
from shadow_model.data.id_layout import IdLayout
from shadow_model.data.shards import count_ids, iter_shard, read_shard
from shadow_model.data.text import Pieces

IDS = np.arange(3000, dtype=np.uint32) * 7


class Reader(NamedTuple):
    """How a file is made and read."""

    write: Callable[[Path], object]
    read: Callable[[Path], object]
    loose: bool = False


def read_whole(path: Path) -> object:
    return count_ids(path), read_shard(path), [len(part) for part in iter_shard(path, 999)]


def write_lists(path: Path) -> None:
    lists = [IDS[i : i + 100].tolist() for i in range(0, len(IDS), 100)]
    pq.write_table(pa.table({"ids": pa.array(lists, pa.list_(pa.uint32()))}), path)


def write_texts(path: Path) -> None:
    pq.write_table(pa.table({"text": [f"document {i} ü" for i in range(300)]}), path)


def read_texts(path: Path) -> object:
    return list(iter_parquet_texts(path, "text"))


def write_layout(path: Path) -> None:
    IdLayout.dense(300, None).save(path.parent)


def read_layout(path: Path) -> object:
    return IdLayout.load(path.parent)


@cache
def trained_pieces() -> Pieces:
    return Pieces.train(["some words of a text to learn from, and to read\n"] * 20, 300)


def write_tokenizer(path: Path) -> None:
    words = {f"word{i}": i for i in range(50)}
    Tokenizer(models.WordLevel(words, unk_token="word0")).save(str(path))


def read_pieces(path: Path) -> object:
    pieces = Pieces.load(path)
    return pieces.size, pieces.encode("some words"), pieces.decode(range(min(9, pieces.size)))


READERS = {
    "part_0.npz": Reader(lambda path: np.savez(path, ids=IDS), read_whole),
    "part_1.npz": Reader(lambda path: np.savez_compressed(path, ids=IDS), read_whole),
    "part_2.parquet": Reader(write_lists, read_whole),
    "part_3.parquet": Reader(lambda p: pq.write_table(pa.table({"ids": IDS}), p), read_whole),
    "text.parquet": Reader(write_texts, read_texts),
    "layout.json": Reader(write_layout, read_layout),
    "pieces.model": Reader(lambda path: trained_pieces().save(path), read_pieces),
    "tokenizer.json": Reader(write_tokenizer, read_pieces),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_not_there(name: str, tmp_path: Path, gone: Any, refusal: Any) -> None:
    path, reader = tmp_path / name, READERS[name]
    reader.write(path)
    reader.read(path)
    gone(path)
    if name == "layout.json" and gone.__name__ == "absent":
        assert reader.read(path) is None, "without a layout ids are text"
    else:
        refusal(reader.read, path)


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_something_else(
    name: str, tmp_path: Path, damaged: Any, refusal: Any
) -> None:
    path, reader = tmp_path / name, READERS[name]
    reader.write(path)
    damaged(path)
    refusal(reader.read, path)


def archive(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def npz_of(header: dict[str, Any], data: bytes = b"", method: int = zipfile.ZIP_STORED) -> bytes:
    """Return an .npz whose ids have a header that states what it likes."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", method) as whole,
        whole.open("ids.npy", "w") as stream,
    ):
        np.lib.format.write_array_header_1_0(
            stream, {"descr": "<u4", "fortran_order": False, **header}
        )
        stream.write(data)
    return file.getvalue()


def npz_of_text(header: str) -> bytes:
    """Return an .npz whose ids have any text as their header."""
    file, text = io.BytesIO(), header.encode()
    with zipfile.ZipFile(file, "w") as whole:
        content = np.lib.format.MAGIC_PREFIX + b"\x01\x00" + struct.pack("<H", len(text)) + text
        whole.writestr("ids.npy", content + IDS.tobytes())
    return file.getvalue()


def with_stated_size(content: bytes, size: int) -> bytes:
    """Let the directory of a zip state another size of its first member."""
    changed, at = bytearray(content), content.rindex(b"PK\x01\x02")
    changed[at + 24 : at + 28] = struct.pack("<I", size)
    return bytes(changed)


def zeros_of(size: int, stated: int) -> bytes:
    """Return an .npz of zeros that expands to `size` ids and states fewer."""
    content = npz_of({"shape": (size,)}, bytes(4 * size), zipfile.ZIP_DEFLATED)
    return with_stated_size(content, stated)


def parquet(**columns: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def layout(**changes: Any) -> bytes:
    return json.dumps(
        {**json.loads(IdLayout.dense(300, None).model_dump_json()), **changes}
    ).encode()


def tokenizer(**changes: Any) -> bytes:
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a", **changes}
    return json.dumps({"version": "1.0", "added_tokens": [], "model": model}).encode()


NESTED = b"[" * 100_000 + b"]" * 100_000
BAD = {
    "other name": ("part_0.npz", lambda: archive(tokens=IDS), "named ids"),
    "floats": ("part_0.npz", lambda: archive(ids=IDS * 0.5), "integer"),
    "NaN": ("part_0.npz", lambda: archive(ids=np.full(9, np.nan)), "integer"),
    "texts": ("part_0.npz", lambda: archive(ids=np.array(["a"])), "integer"),
    "two dimensions": ("part_0.npz", lambda: archive(ids=IDS.reshape(30, 100)), "1-D"),
    "no dimension": ("part_0.npz", lambda: archive(ids=np.array(3)), "1-D"),
    "no ids": ("part_0.npz", lambda: archive(ids=IDS[:0]), "at least one"),
    "negative": ("part_0.npz", lambda: archive(ids=np.array([3, -1])), "-1"),
    "over 32 bits": ("part_0.npz", lambda: archive(ids=np.array([1 << 32])), "4294967296"),
    "absurd count": ("part_0.npz", lambda: npz_of({"shape": (1 << 60,)}, b"1234"), "header"),
    "negative count": ("part_0.npz", lambda: npz_of({"shape": (-1,)}, b"1234"), "shape"),
    "absurd item": (
        "part_0.npz",
        lambda: npz_of({"descr": "<U999999999", "shape": (1,)}),
        "header|states",
    ),
    "nested header": ("part_0.npz", lambda: npz_of_text("-" * 9000 + "1"), "header|parse"),
    "deep header": ("part_0.npz", lambda: npz_of_text("(" * 5000), "header|parse"),
    "header that calls": ("part_0.npz", lambda: npz_of_text("__import__('os')"), "header"),
    "expands to more": ("part_0.npz", lambda: zeros_of(1 << 20, 4000), "header|CRC"),
    "claims terabytes": ("part_0.npz", lambda: zeros_of(1 << 10, 0xFFFFFF00), "true size"),
    "a path as name": ("part_0.npz", lambda: archive(**{"../../ids": IDS}), "named ids"),
    "columns of others": ("part_2.parquet", lambda: parquet(tokens=[1]), "column ids"),
    "column of floats": ("part_2.parquet", lambda: parquet(ids=[0.5]), "integer"),
    "lists of lists": ("part_2.parquet", lambda: parquet(ids=[[[1]]]), "integer"),
    "a null": ("part_2.parquet", lambda: parquet(ids=[[1], None]), "null"),
    "a null inside": ("part_2.parquet", lambda: parquet(ids=[[1, None]]), "null"),
    "negative in Parquet": ("part_2.parquet", lambda: parquet(ids=[[-5]]), "-5"),
    "no column text": ("text.parquet", lambda: parquet(words=["a"]), "'text'"),
    "numbers as text": ("text.parquet", lambda: parquet(text=[1, 2]), "int64"),
    "no UTF-8": (
        "text.parquet",
        lambda: parquet(
            text=pa.array([b"a", b"\xff"]).view(pa.binary()).cast("string", safe=False)
        ),
        "0xff in row 1",
    ),
    "layout: nested": ("layout.json", lambda: NESTED, "nested"),
    "layout: a list": ("layout.json", lambda: b"[1]", "version 1"),
    "layout: vocab": (
        "layout.json",
        lambda: layout(vocab=1 << 50, bands={}, marks={}, controls={}),
        "below 16777216",
    ),
    "layout: far band": ("layout.json", lambda: layout(bands={"image": [1 << 40, 9]}), "below"),
    "layout: NaN": ("layout.json", lambda: layout(vocab=float("nan")), "NaN"),
    "layout: version": ("layout.json", lambda: layout(version=9), "version"),
    "layout: path": ("layout.json", lambda: layout(pieces="../../pieces.model"), "folders"),
    "layout: lost pieces": ("layout.json", lambda: layout(pieces=".."), "no file"),
    "pieces: nested": ("tokenizer.json", lambda: NESTED, "nested"),
    "pieces: a list": ("tokenizer.json", lambda: b"[]", "tokenizer"),
    "pieces: far id": (
        "tokenizer.json",
        lambda: tokenizer(vocab={"a": 0, "b": 4_000_000_000}),
        "id",
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_changed_bytes_give_a_result_or_an_error_of_ours(
    name: str, tmp_path: Path, changes: Any
) -> None:
    path, reader = tmp_path / name, READERS[name]
    reader.write(path)
    changes(reader.read, path)


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_holds_what_it_must_not(case: str, tmp_path: Path, refusal: Any) -> None:
    name, content, said = BAD[case]
    path = tmp_path / name
    path.write_bytes(content())
    error = refusal(READERS[name].read, path)
    assert re.search(said, str(error)), str(error)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_pickled_objects_are_never_loaded(
    save: Any, tmp_path: Path, canary: Any, refusal: Any
) -> None:
    path = tmp_path / "part_0.npz"
    save(path, ids=np.array([canary], object))
    assert "never loaded" in refusal(read_whole, path).found


def test_a_text_repeated_in_many_rows_stays_one_in_memory(tmp_path: Path, tolerance: Any) -> None:
    path, text = tmp_path / "text.parquet", "long text " * 150_000
    column = pa.DictionaryArray.from_arrays(np.zeros(1024, np.int32), [text])
    pq.write_table(pa.table({"text": column}), path)
    assert path.stat().st_size < 1 << 20
    read = []
    assert tolerance(lambda p: read.extend(map(len, iter_parquet_texts(p, "text"))), path)
    assert read == [len(text)] * 1024


def test_a_row_of_more_ids_than_memory_holds_is_refused(
    tmp_path: Path, refusal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shadow_model.data.parquet_ids._MAX_DOCUMENT_IDS", 1 << 16)
    path = tmp_path / "part_2.parquet"
    many = pa.ListArray.from_arrays([0, 80_000], np.zeros(80_000, np.uint8))
    pq.write_table(pa.table({"ids": many}), path)
    assert "ids a row" in refusal(read_whole, path).must
