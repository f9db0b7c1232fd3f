"""How many bytes of text each language row spells, so that losses can be told in bits per byte.

The tokenizer stands beside the table that it was made with; a table without one has rows whose
bytes are unknown.
"""

from pathlib import Path

import numpy as np

from shadow_model.data.text import Pieces
from shadow_model.table.store import Table

_NAMES = ("pieces.json", "pieces.model")


def read_row_bytes(table_path: Path, table: Table) -> np.ndarray | None:
    """Return the bytes of each language row.

    Args:
        table_path: table.npz; its folder may hold the tokenizer.
        table: What it holds.

    Returns:
        (num_lang,) int64, 0 for pieces that spell nothing; None without a tokenizer, or where it
        lacks a piece that the table names.

    Raises:
        DataError: The tokenizer is there and cannot be read.
    """
    path = next((p for n in _NAMES if (p := table_path.parent / n).is_file()), None)
    if path is None:
        return None
    pieces = Pieces.load(path)
    if int(table.lang_old_ids.max()) >= pieces.size:
        return None
    return np.array([pieces.num_bytes(int(i)) for i in table.lang_old_ids], np.int64)
