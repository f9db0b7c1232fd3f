"""The canonical ids of a table whose word pieces lie beside it, as the table stage leaves them."""

import logging
from pathlib import Path

import numpy as np

from shadow_model.data.text import Pieces
from shadow_model.errors import DataError
from shadow_model.table.canonical import canonical_of_table
from shadow_model.table.store import Table

_log = logging.getLogger(__name__)


def read_canonical(table_path: Path, table: Table) -> np.ndarray:
    """Return the canonical id of each row of a table.

    Args:
        table_path: The table.npz; `pieces.model` or `pieces.json` is looked for beside it.
        table: The same, loaded.

    Returns:
        (R,) int64; each row's own number where no pieces are found, and the log says so.

    Raises:
        DataError: The pieces cannot be read, or are fewer than the table's old ids imply.
    """
    found = sorted(table_path.parent.glob("pieces.*"))
    if not found:
        _log.warning("no pieces.* beside %s: every row is its own canonical id", table_path)
        return canonical_of_table(table.layout, table.lang_old_ids, None)
    pieces = Pieces.load(found[0])
    if (highest := int(table.lang_old_ids.max())) >= pieces.size:
        must, fix = f"have the piece {highest} of {table_path}", "Put the table's own beside it."
        raise DataError(found[0], must, f"{pieces.size} pieces", fix)
    return canonical_of_table(table.layout, table.lang_old_ids, pieces)
