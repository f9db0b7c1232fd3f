"""Entropy of the held-out text's unigrams: what a model that knows only frequencies would pay.

A row's kind is its band's; language rows, markers and controls count as text. The estimate is the
plug-in one, from the held-out rows themselves, so it is slightly low where rows are few: a bar
that is a little harder to pass.
"""

from pathlib import Path

import numpy as np

from shadow_model.errors import DataError
from shadow_model.table.layout import KINDS, Layout

_CHUNK_ROWS = 1 << 22


def held_out_entropy(path: Path, layout: Layout) -> dict[str, float]:
    """Return {kind: nats a token} of a bin's rows, for every kind that occurs in it.

    Args:
        path: val.bin, little-endian uint32 rows.
        layout: Of the table that the bin was made with.

    Raises:
        DataError: The file is absent, not whole, empty, or holds a row beyond the table.
    """
    counts = _count_rows(path, layout.num_rows)
    kinds = layout.kind_of_rows()
    found: dict[str, float] = {}
    for index, kind in enumerate(KINDS):
        own = counts[(kinds == index) & (counts > 0)]
        if len(own):
            share = own / own.sum()
            found[kind] = float(-(share * np.log(share)).sum())
    return found


def _count_rows(path: Path, num_rows: int) -> np.ndarray:
    fix = "Pack the shards again."
    try:
        rows = np.memmap(path, dtype="<u4", mode="r")
    except (OSError, ValueError) as error:
        raise DataError(path, "be a bin of uint32 rows", error, fix) from error
    counts = np.zeros(num_rows, np.int64)
    for start in range(0, len(rows), _CHUNK_ROWS):
        chunk = rows[start : start + _CHUNK_ROWS]
        if chunk.max() >= num_rows:
            raise DataError(path, f"hold rows below {num_rows}", int(chunk.max()), fix)
        counts += np.bincount(chunk, minlength=num_rows)
    return counts
