"""Canonical ids from the pieces that lie beside a table."""

import logging
from pathlib import Path

import numpy as np
import pytest

from shadow_model.data.canonical import read_canonical
from shadow_model.data.text import Pieces
from shadow_model.errors import DataError
from shadow_model.table.store import Table
from shadow_model.table.synthetic import synthetic_table


@pytest.fixture(scope="module")
def pieces() -> Pieces:
    return Pieces.train(["The the THE cat Cat sat on the mat. " * 40], 300)


def test_pieces_beside_the_table_decide(tmp_path: Path, pieces: Pieces) -> None:
    pieces.save(tmp_path / "pieces.model")
    table = synthetic_table(pieces.size, 1)
    found = read_canonical(tmp_path / "table.npz", table)
    texts = [pieces.piece_text(i) for i in range(pieces.size)]
    upper, lower = texts.index("T"), texts.index("t")
    assert found[upper] == found[lower] == min(upper, lower)
    assert np.array_equal(found[pieces.size :], np.arange(pieces.size, table.num_rows))


def test_without_pieces_each_row_is_its_own_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = synthetic_table(64, 1)
    with caplog.at_level(logging.WARNING):
        found = read_canonical(tmp_path / "table.npz", table)
    assert np.array_equal(found, np.arange(table.num_rows))
    assert "every row is its own canonical id" in caplog.text


def test_pieces_of_another_table_are_refused(tmp_path: Path, pieces: Pieces) -> None:
    pieces.save(tmp_path / "pieces.model")
    table = synthetic_table(64, 1)
    other = Table(table.bits, table.bias, table.layout, table.lang_old_ids + pieces.size)
    with pytest.raises(DataError, match="must have the piece"):
        read_canonical(tmp_path / "table.npz", other)
