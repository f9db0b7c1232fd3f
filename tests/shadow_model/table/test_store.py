import json
from pathlib import Path

import numpy as np
import pytest

from shadow_model.errors import LayoutError
from shadow_model.table.store import Table, table_digest
from shadow_model.table.synthetic import synthetic_table


@pytest.fixture(scope="module")
def table() -> Table:
    return synthetic_table(40, seed=0)


@pytest.fixture(scope="module")
def saved(table: Table, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("table") / "whole.npz"
    table.save(path)
    return path


@pytest.fixture
def fields(saved: Path) -> dict[str, np.ndarray]:
    with np.load(saved, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _load(path: Path, fields: dict[str, np.ndarray]) -> Table:
    np.savez(path, **fields)
    return Table.load(path)


def test_saved_table_loads_unchanged(table: Table, tmp_path: Path) -> None:
    table.save(tmp_path / "table.npz")
    read = Table.load(tmp_path / "table.npz")
    assert np.array_equal(read.bits, table.bits)
    assert np.array_equal(read.bias, table.bias)
    assert np.array_equal(read.lang_old_ids, table.lang_old_ids)
    assert read.layout == table.layout


def test_equal_tables_give_equal_files(table: Table, tmp_path: Path) -> None:
    table.save(tmp_path / "one.npz")
    synthetic_table(40, seed=0).save(tmp_path / "two.npz")
    assert table_digest(tmp_path / "one.npz") == table_digest(tmp_path / "two.npz")


def test_file_has_the_fields_of_the_format(fields: dict[str, np.ndarray], table: Table) -> None:
    assert fields["bits"].dtype == np.uint8
    assert fields["lang_old_ids"].dtype == np.int64
    assert int(fields["n_lang"]) == 40
    assert json.loads(str(fields["off"])) == table.layout.offsets
    assert json.loads(str(fields["marks"]))["sep"] == table.layout.marks["sep"]
    assert json.loads(str(fields["ctrl_names"])) == list(table.layout.controls)


def test_strings_of_an_older_writer_load_without_pickle(
    fields: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """0-d unicode arrays, integers of another width."""
    fields |= {"n_lang": np.int32(40), "ctrl_off": np.int32(fields["ctrl_off"])}
    assert _load(tmp_path / "older.npz", fields).layout.num_lang == 40


def test_signs_and_packed_agree_with_the_bits(table: Table) -> None:
    signs, packed = table.signs(), table.packed()
    assert set(np.unique(signs)) == {-1.0, 1.0}
    differ = (table.bits[0] != table.bits[1]).sum()
    assert np.bitwise_count(packed[0] ^ packed[1]).sum() == differ
    assert signs[0] @ signs[1] == 512 - 2 * differ


def test_missing_field_is_named(fields: dict[str, np.ndarray], tmp_path: Path) -> None:
    del fields["bias"]
    with pytest.raises(LayoutError, match=r"table\.npz.*bias"):
        _load(tmp_path / "table.npz", fields)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("bits", lambda x: x[:-1]),
        ("bits", lambda x: x[:, :-1]),
        ("bits", lambda x: x.astype(np.float32)),
        ("bits", lambda x: x * 2),
        ("bias", lambda x: x[:-1]),
        ("bias", lambda x: x.astype(np.float64)),
        ("bias", lambda x: np.where(np.arange(len(x)) == 7, np.nan, x).astype(np.float32)),
        ("lang_old_ids", lambda x: x[:-1]),
        ("lang_old_ids", np.zeros_like),
        ("off", lambda _: np.array(json.dumps({"image": 1, "audio": 2, "video": 3}))),
        ("marks", lambda _: np.array("no JSON")),
        ("ctrl_off", lambda x: x + 1),
        ("ctrl_names", lambda _: np.array(json.dumps(["[/image]"]))),
        ("n_lang", lambda x: x + 1),
        ("n_lang", lambda x: x * 0),
    ],
)
def test_wrong_field_is_refused(field, change, fields, tmp_path: Path) -> None:
    fields[field] = change(fields[field])
    with pytest.raises(LayoutError, match=r"table\.npz"):
        _load(tmp_path / "table.npz", fields)


@pytest.mark.parametrize(("first", "second"), [(0, 1), (3, 28_000), (28_700, 28_720)])
def test_equal_rows_are_named(first, second, fields, tmp_path: Path) -> None:
    fields["bits"][second] = fields["bits"][first]
    with pytest.raises(LayoutError, match=rf"rows {first} and {second}"):
        _load(tmp_path / "table.npz", fields)


def test_rows_that_differ_in_the_last_bit_only_are_not_equal(fields, tmp_path: Path) -> None:
    """Also where they end in zero bytes, which some comparisons of fixed-width text drop."""
    fields["bits"][:2] = 0
    fields["bits"][1, -1] = 1
    assert _load(tmp_path / "table.npz", fields).num_rows == len(fields["bits"])


def test_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.npz"
    with pytest.raises(LayoutError, match=r"table\.npz"):
        Table.load(path)
    path.write_bytes(b"PK\x03\x04 truncated")
    with pytest.raises(LayoutError, match=r"table\.npz"):
        Table.load(path)


def test_pickled_field_is_refused(fields, tmp_path: Path) -> None:
    fields["off"] = np.array({"image": 40}, dtype=object)
    with pytest.raises(LayoutError, match="without pickle"):
        _load(tmp_path / "table.npz", fields)
