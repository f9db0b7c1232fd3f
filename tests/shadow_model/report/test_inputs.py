"""A report's inputs are found by the stages' names; JSON that is none is refused."""

from pathlib import Path
from typing import Any

import pytest

from shadow_model.errors import DataError
from shadow_model.report.inputs import ReportInputs, read_json


def test_folders_are_found_by_stage(chain: Any) -> None:
    inputs = chain.inputs()
    assert inputs.bins == chain.store.folder(chain.receipts["pack"])
    assert inputs.flat == chain.store.folder(chain.receipts["flat"])
    assert len(inputs.receipts) == 9
    assert inputs.counts("table")["collisions"] == 0
    assert inputs.counts("novel") == {}
    assert chain.inputs(without=("speed",)).speed is None


def test_no_receipt_is_no_folder(chain: Any) -> None:
    assert ReportInputs.of(chain.store, ()) == ReportInputs(())


@pytest.mark.parametrize("content", [None, b"", b"{", b"[1]", b"\xff\xff"])
def test_other_files_are_refused_by_name(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "smoke.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"smoke\.json: must be a JSON"):
        read_json(path)


def test_values_that_are_no_numbers_become_none(tmp_path: Path) -> None:
    path = tmp_path / "smoke.json"
    path.write_text('{"loss": NaN, "most": Infinity}')
    assert read_json(path) == {"loss": None, "most": None}
