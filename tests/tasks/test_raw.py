"""The root of the lineage: raw files by content, wherever they lie."""

from pathlib import Path

import pytest
from prefect import flow

from shadow_model.data.sources import SourceInput, SourcesConfig
from shadow_model.errors import DataError
from shadow_model.receipt import Receipt
from shadow_model.store import Store
from tasks.chain import Chain
from tasks.raw import raw_inputs, raw_vectors

pytestmark = pytest.mark.usefixtures("prefect_api")


def look(store: Path, folder: Path) -> Receipt:
    """Return the receipt of a folder of text files."""
    chain = Chain(Store(store))
    config = SourcesConfig(inputs=(SourceInput(name="books", kind="text", path=folder),))
    return flow(lambda: chain.start(raw_inputs, config), name="look")()


def write(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "book.txt").write_text(text)
    return folder


def test_another_folder_with_the_same_bytes_is_the_same(tmp_path: Path) -> None:
    here = look(tmp_path / "store", write(tmp_path / "here", "once upon a time"))
    there = look(tmp_path / "store", write(tmp_path / "there", "once upon a time"))
    assert here == there, "the first receipt is found again"
    assert here.counts["files"] == 1


def test_one_changed_byte_is_another_key(tmp_path: Path) -> None:
    folder = write(tmp_path / "here", "once upon a time")
    before = look(tmp_path / "store", folder)
    (folder / "book.txt").write_text("once upon a Time")
    assert look(tmp_path / "store", folder).key != before.key


def test_files_of_the_table_are_named_by_their_role(tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.npy"
    vectors.write_bytes(b"numbers")
    chain = Chain(Store(tmp_path / "store"))
    receipt = flow(lambda: chain.start(raw_vectors, {"vectors_path": vectors}), name="look")()
    listing = (chain.store.folder(receipt) / "raw.json").read_text()
    assert '"vectors_path"' in listing
    assert str(tmp_path) not in listing


def test_what_is_foreseen_is_what_is_recorded(tmp_path: Path) -> None:
    folder = write(tmp_path / "here", "once upon a time")
    config = SourcesConfig(inputs=(SourceInput(name="books", kind="text", path=folder),))
    store = Store(tmp_path / "store")
    foreseen = raw_inputs.foresee(store, config)
    assert store.find("raw", foreseen.key) is None, "nothing was written"
    seen = look(tmp_path / "store", folder)
    assert foreseen.as_input() == seen.as_input()
    assert raw_inputs.foresee(store, config) == seen


def test_an_absent_file_of_the_table_is_named(tmp_path: Path) -> None:
    look = raw_vectors.bind(Store(tmp_path / "store"))
    with pytest.raises(DataError, match=r"absent\.csv: must be the file of table\.ratings"):
        flow(lambda: look({"ratings": tmp_path / "absent.csv"}), name="look")()
