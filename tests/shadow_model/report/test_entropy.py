"""Entropy of held-out unigrams against values known by hand."""

import math
from pathlib import Path

import numpy as np
import pytest

from shadow_model.errors import DataError
from shadow_model.report import entropy
from shadow_model.report.entropy import held_out_entropy
from shadow_model.table.layout import Layout

LAYOUT = Layout(num_lang=10)


def write(path: Path, rows: list[int]) -> Path:
    np.array(rows, "<u4").tofile(path)
    return path


def test_entropy_of_even_and_single_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entropy, "_CHUNK_ROWS", 3)  # several chunks
    picture, sound = LAYOUT.offsets["image"], LAYOUT.offsets["audio"]
    rows = [0, 1, 2, LAYOUT.marks["sep"], picture, picture + 5, picture, picture + 5, sound]
    found = held_out_entropy(write(tmp_path / "val.bin", rows), LAYOUT)
    # Tolerance: a few sums in float64.
    assert found["text"] == pytest.approx(math.log(4), abs=1e-12)
    assert found["picture"] == pytest.approx(math.log(2), abs=1e-12)
    assert found["sound"] == 0
    assert "clip" not in found


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file"), (b"", "empty"), (b"12345", "multiple"), (b"\xff" * 4, "4294967295")],
)
def test_bin_that_is_none_is_refused(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "val.bin"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        held_out_entropy(path, LAYOUT)
    assert str(path) in str(caught.value)
