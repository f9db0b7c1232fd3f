"""From an old id to its row, and to the byte pieces that spell it where it has no row.

The look-up is one gather by Arrow, the fastest of those measured; its range is checked before, once
a chunk. Where a chunk holds ids without a row, a second gather takes each id as a string of rows of
any length: one row, the rows of its bytes, or none.

Shapes: V old ids, N ids of a chunk, M rows that they become.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shadow_model.data.id_layout import IdLayout
from shadow_model.data.text import Pieces
from shadow_model.errors import LayoutError
from shadow_model.table.store import Table

MISSING = 0xFFFFFFFF
"""Stands in `Lookup.rows` where an old id has no row."""
Missing = Literal["expand", "drop", "error"]
_ROW_BYTES = 4


class Mapped(NamedTuple):
    """A chunk in rows: (M,) uint32, and how many of its ids were expanded and dropped."""

    rows: np.ndarray
    num_expanded: int
    num_dropped: int


@dataclass(frozen=True)
class Lookup:
    """What every old id becomes.

    Attributes:
        rows: (V,) uint32, the row of each old id, or MISSING.
        offsets: (V + 1,) int64, where the expansion of each begins and ends in `values`; nothing
            lies between where an id has a row or cannot be expanded.
        values: (offsets[-1],) uint32 rows.
        missing: What happens to ids without a row.
    """

    rows: np.ndarray
    offsets: np.ndarray
    values: np.ndarray
    missing: Missing

    @property
    def num_ids(self) -> int:
        """Old ids in all (V)."""
        return len(self.rows)

    @cached_property
    def refused(self) -> np.ndarray:
        """(V,) bool: ids that may not occur, for they would be lost."""
        if self.missing == "drop":
            return np.zeros(self.num_ids, bool)
        lost: np.ndarray = (self.rows == MISSING) & (np.diff(self.offsets) == 0)
        return lost

    def first_out_of_range(self, ids: np.ndarray) -> int | None:
        """Return the position of the first id that is not below V, or None."""
        return int(np.argmax(ids >= self.num_ids)) if ids.max() >= self.num_ids else None

    def first_refused(self, ids: np.ndarray) -> int | None:
        """Return the position of the first refused id, or None; ids are in range."""
        hits = self.refused[ids]
        return int(np.argmax(hits)) if hits.any() else None

    def apply(self, ids: np.ndarray) -> Mapped | None:
        """Map a chunk.

        Args:
            ids: (N,) uint32, N > 0, all below V.

        Returns:
            The rows; None where an id is refused.
        """
        indices = pa.array(ids)
        taken = pc.take(self._arrow_rows, indices, boundscheck=False)
        rows = np.frombuffer(taken.buffers()[1], np.uint32, len(ids))
        if rows.max() != MISSING:
            return Mapped(rows, 0, 0)
        without = ids[rows == MISSING]
        if self.refused[without].any():
            return None
        num_dropped = int(np.count_nonzero(np.diff(self.offsets)[without] == 0))
        return Mapped(self._strings(indices), len(without) - num_dropped, num_dropped)

    def _strings(self, indices: pa.Array) -> np.ndarray:
        taken = pc.take(self._arrow_strings, indices, boundscheck=False)
        _, ends, content = taken.buffers()
        num_bytes = np.frombuffer(ends, np.int64)[len(taken)]
        return np.frombuffer(content, np.uint32, num_bytes // _ROW_BYTES)

    @cached_property
    def _arrow_rows(self) -> pa.Array:
        return pa.array(self.rows)

    @cached_property
    def _arrow_strings(self) -> pa.Array:
        """Every id as the bytes of its rows, whether it has one, many or none."""
        has_row = self.rows != MISSING
        lengths = np.where(has_row, 1, np.diff(self.offsets))
        ends = np.concatenate([[0], np.cumsum(lengths)])
        content = np.empty(ends[-1], np.uint32)
        single = np.repeat(has_row, lengths)
        content[single] = self.rows[has_row]
        content[~single] = self.values
        buffers = [None, pa.py_buffer(ends * _ROW_BYTES), pa.py_buffer(content)]
        return pa.Array.from_buffers(pa.large_binary(), self.num_ids, buffers)


def lookup(
    table: Table,
    layout: IdLayout | None,
    pieces: Pieces | None,
    missing: Missing = "expand",
    old_vocabulary: int | None = None,
) -> Lookup:
    """Work out what every old id becomes.

    Args:
        table: Knows the old id of each language row.
        layout: Says what an old id is; None: every one is a text piece.
        pieces: Spells pieces in bytes; None: nothing can be expanded.
        missing: What happens to ids without a row.
        old_vocabulary: Old ids in all where there is no layout; None: up to the table's largest.

    Raises:
        LayoutError: The table names text ids that the layout does not have.
    """
    vocab = _vocabulary(table, layout, old_vocabulary)
    rows = np.full(layout.num_ids if layout else vocab, MISSING, np.uint32)
    rows[table.lang_old_ids] = np.arange(table.layout.num_lang)
    if layout is not None:
        _place_bands(rows, table, layout)
    if missing != "expand" or pieces is None or layout is None:
        return Lookup(rows, np.zeros(len(rows) + 1, np.int64), np.empty(0, np.uint32), missing)
    return Lookup(rows, *_expansions(rows, pieces, vocab), missing)


def _vocabulary(table: Table, layout: IdLayout | None, old_vocabulary: int | None) -> int:
    """Return the number of text ids, once the table's are known to lie among them."""
    low, high = int(table.lang_old_ids.min()), int(table.lang_old_ids.max())
    vocab = layout.vocab if layout else old_vocabulary or high + 1
    if low < 0 or high >= vocab:
        must = f"name old ids of the text pieces, those in [0, {vocab})"
        fix = "Use the table built for these ids, or correct layout.json or remap.old_vocabulary."
        raise LayoutError("table.lang_old_ids", must, f"ids from {low} to {high}", fix)
    return vocab


def _place_bands(rows: np.ndarray, table: Table, layout: IdLayout) -> None:
    """Give band codes, marks and controls the rows that the table has for them."""
    new = table.layout
    for band, (first, count) in layout.bands.items():
        rows[first : first + count] = new.offsets[band] + np.arange(count)
    for mark, old in layout.marks.items():
        rows[old] = new.marks[mark]
    for name, old in layout.controls.items():
        if name in new.controls:
            rows[old] = new.control(name)


def _expansions(rows: np.ndarray, pieces: Pieces, vocab: int) -> tuple[np.ndarray, np.ndarray]:
    lengths, values = np.zeros(len(rows), np.int64), list[np.ndarray]()
    for old in np.flatnonzero(rows[: min(vocab, pieces.size)] == MISSING):
        spelt = rows[np.array(pieces.byte_expansion(int(old)), np.int64)]
        if len(spelt) and not (spelt == MISSING).any():
            lengths[old] = len(spelt)
            values.append(spelt)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return offsets, np.concatenate([*values, np.empty(0, np.uint32)])
