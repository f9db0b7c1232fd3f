"""Bytes of language rows come from the tokenizer beside the table."""

from pathlib import Path

import numpy as np

from shadow_model.data.text import Pieces
from shadow_model.table.synthetic import synthetic_table
from shadow_model.train.row_bytes import read_row_bytes

TEXT = "a naïve café near the naïve river, and the river near the café\n" * 40


def test_rows_have_the_bytes_of_their_pieces(tmp_path: Path) -> None:
    pieces = Pieces.train([TEXT], 320)
    table = synthetic_table(pieces.size, 0)
    assert read_row_bytes(tmp_path / "table.npz", table) is None
    pieces.save(tmp_path / f"pieces{pieces.suffix}")
    found = read_row_bytes(tmp_path / "table.npz", table)
    assert found is not None
    row_of = {int(old): row for row, old in enumerate(table.lang_old_ids)}
    rows = [row_of[int(piece)] for piece in pieces.encode(TEXT)]
    assert found[rows].sum() == len(TEXT.encode())


def test_tokenizer_of_other_rows_is_of_no_use(tmp_path: Path) -> None:
    pieces = Pieces.train([TEXT], 300)
    pieces.save(tmp_path / f"pieces{pieces.suffix}")
    table = synthetic_table(400, 0)
    assert int(np.max(table.lang_old_ids)) >= pieces.size
    assert read_row_bytes(tmp_path / "table.npz", table) is None
