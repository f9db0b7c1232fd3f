"""Counting the kinds of tokens in a stream of rows."""

from collections.abc import Mapping

import numpy as np

from shadow_model.table.layout import BANDS, KINDS, Layout


def count_kinds(rows: np.ndarray, layout: Layout) -> np.ndarray:
    """Return how many rows are of each kind; markers and controls count as text.

    Args:
        rows: (N,) row ids, N > 0; every one below the layout's number of rows.

    Returns:
        (4,) int64 in the order of KINDS.
    """
    edges = [*layout.offsets.values(), layout.marks[BANDS[0]]]
    counts = np.zeros(len(KINDS), np.int64)
    if rows.max() >= edges[0]:  # most chunks of a text lane need no more than this one look
        below = np.array([np.count_nonzero(rows < edge) for edge in edges])
        counts[1:] = np.diff(below)
    counts[0] = len(rows) - counts.sum()
    return counts


def named(counts: np.ndarray) -> Mapping[str, int]:
    """Return counts by kind as {kind: tokens}, for receipts."""
    return {kind: int(count) for kind, count in zip(KINDS, counts, strict=True)}
