"""layout.json: what an old id is."""

import json
from pathlib import Path
from typing import Any

import pytest

from shadow_model.data.id_layout import IdLayout
from shadow_model.errors import DataError
from shadow_model.table.layout import BAND_ROWS, REQUIRED_CONTROLS

VALID: dict[str, Any] = {
    "version": 1,
    "vocab": 100,
    "bands": {"image": [100, 50], "video": [200, 10]},
    "marks": {"image": 150, "sep": 151},
    "controls": {"[end_gen]": 152},
    "pieces": None,
}


def write(folder: Path, **changes: Any) -> None:
    (folder / "layout.json").write_text(json.dumps({**VALID, **changes}))


def test_a_layout_is_read_as_it_was_saved(tmp_path: Path) -> None:
    (tmp_path / "pieces.model").touch()
    layout = IdLayout.dense(8192, "pieces.model")
    layout.save(tmp_path)
    assert IdLayout.load(tmp_path) == layout


def test_our_layout_has_no_gap() -> None:
    layout = IdLayout.dense(1000, None)
    assert layout.bands["image"] == (1000, BAND_ROWS["image"])
    assert layout.num_ids == 1000 + sum(BAND_ROWS.values()) + 4 + len(REQUIRED_CONTROLS)
    assert sorted(layout.controls.values())[-1] == layout.num_ids - 1


def test_without_a_file_there_is_no_layout(tmp_path: Path) -> None:
    assert IdLayout.load(tmp_path) is None


def test_gaps_and_absent_parts_are_allowed(tmp_path: Path) -> None:
    write(tmp_path)
    layout = IdLayout.load(tmp_path)
    assert layout is not None
    assert layout.num_ids == 210


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 2}, "version"),
        ({"vocab": 0}, "vocab"),
        ({"colour": 1}, "colour"),
        ({"bands": {"picture": [100, 50]}}, "bands"),
        ({"bands": {"image": [90, 50]}}, "ids of text end at 100, those of image begin at 90"),
        ({"bands": {"video": [1000, 5000]}}, "5000 codes"),
        ({"marks": {"sep": 152}}, "ids of"),
        ({"controls": {"[end_gen]": -1}}, "controls"),
        ({"pieces": "absent.model"}, "absent.model"),
        ({"pieces": "../pieces.model"}, "without folders"),
    ],
)
def test_a_faulty_layout_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    write(tmp_path, **changes)
    with pytest.raises(DataError, match=said) as error:
        IdLayout.load(tmp_path)
    assert "layout.json" in str(error.value)


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "layout.json").write_text("{")
    with pytest.raises(DataError, match="JSON"):
        IdLayout.load(tmp_path)
