import json
import logging
from pathlib import Path

import numpy as np
import pytest

from shadow_model.data import bins
from shadow_model.data.bins import Bin, open_bins, read_packed
from shadow_model.errors import DataError, LayoutError
from shadow_model.table.layout import Layout
from shadow_model.table.store import table_digest
from shadow_model.table.synthetic import synthetic_table


@pytest.fixture(scope="module")
def table_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "table.npz"
    synthetic_table(50, 0).save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path, table_path: Path) -> Path:
    np.arange(40, dtype="<u4").tofile(tmp_path / "train.bin")
    np.arange(9, dtype="<u4").tofile(tmp_path / "val.bin")
    write_packed(tmp_path, version=1, table=table_digest(table_path))
    return tmp_path


def write_packed(folder: Path, **fields: object) -> None:
    packed = {"lanes": ["a"], "train": 40, "val": 9, **fields}
    (folder / "packed.json").write_text(json.dumps(packed))


def test_bins_are_mapped_as_they_were_written(folder: Path, table_path: Path) -> None:
    opened = open_bins(folder, table_path, ctx=8)
    assert isinstance(opened.train.ids, np.memmap)
    assert opened.train.ids.tolist() == list(range(40))
    assert (opened.train.num_tokens, opened.val.num_tokens) == (40, 9)
    assert opened.packed.lanes == ("a",)


def test_bins_of_another_table_are_refused(folder: Path, table_path: Path) -> None:
    write_packed(folder, version=1, table="0" * 64)
    with pytest.raises(LayoutError, match="another") as caught:
        open_bins(folder, table_path)
    assert caught.value.where.endswith("packed.json")


def test_packed_json_without_version_is_taken_with_a_warning(
    folder: Path, table_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_packed(folder, note="whatever an older program adds")
    with caplog.at_level(logging.WARNING):
        opened = open_bins(folder, table_path)
    assert opened.packed.table is None
    assert "names no table" in caplog.text


def test_ids_that_are_no_rows_are_named_with_their_position(
    folder: Path, table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bins, "_CHUNK_TOKENS", 4)
    num_rows = Layout(num_lang=50).num_rows
    ids = np.zeros(9, "<u4")
    ids[6] = num_rows
    ids.tofile(folder / "val.bin")
    with pytest.raises(DataError, match=f"{num_rows} at position 6") as caught:
        open_bins(folder, table_path)
    assert caught.value.where.endswith("val.bin")
    ids[6] = num_rows - 1
    ids.tofile(folder / "val.bin")
    open_bins(folder, table_path)


@pytest.mark.parametrize(("tokens", "ctx", "fits"), [(9, 8, True), (8, 8, False), (1, 8, False)])
def test_a_window_needs_one_token_more_than_its_ctx(
    tmp_path: Path, tokens: int, ctx: int, fits: bool
) -> None:
    path = tmp_path / "val.bin"
    np.zeros(tokens, "<u4").tofile(path)
    if fits:
        assert Bin.open(path, ctx).num_tokens == tokens
        return
    with pytest.raises(DataError, match=f"window of {ctx} tokens.*found {tokens} tokens"):
        Bin.open(path, ctx)


def test_an_empty_bin_is_refused(tmp_path: Path) -> None:
    (tmp_path / "val.bin").touch()
    with pytest.raises(DataError, match="found 0 tokens"):
        Bin.open(tmp_path / "val.bin", 4)


def test_a_size_that_is_no_whole_number_of_tokens_is_refused(
    folder: Path, table_path: Path
) -> None:
    with (folder / "train.bin").open("ab") as file:
        file.write(b"xy")
    with pytest.raises(DataError, match="162 bytes"):
        open_bins(folder, table_path)


def test_a_size_that_packed_json_does_not_say_is_refused(folder: Path, table_path: Path) -> None:
    np.arange(39, dtype="<u4").tofile(folder / "train.bin")
    with pytest.raises(DataError, match=r"40 tokens.*found 39"):
        open_bins(folder, table_path)


@pytest.mark.parametrize("name", ["train.bin", "val.bin", "packed.json"])
def test_an_absent_file_is_named(folder: Path, table_path: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(DataError, match="no such file") as caught:
        open_bins(folder, table_path)
    assert caught.value.where.endswith(name)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("{", "JSON"),
        ("[1]", "packed.json"),
        ('"text"', "packed.json"),
        ('{"lanes": [], "train": 1}', "val"),
        ('{"version": 2, "lanes": [], "train": 1, "val": 1}', "version"),
        ('{"version": 1, "lanes": [], "train": 1, "val": 1, "tabel": "x"}', "tabel"),
        ('{"lanes": [], "train": -1, "val": 1}', "train"),
        ('{"lanes": [], "train": "many", "val": 1}', "train"),
        ("\xff", "JSON"),
    ],
)
def test_a_packed_json_that_is_none_is_refused(tmp_path: Path, content: str, found: str) -> None:
    path = tmp_path / "packed.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match=found) as caught:
        read_packed(path)
    assert caught.value.where == str(path)
