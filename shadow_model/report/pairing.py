"""The difference of two arms on the same held-out windows, window by window.

What makes a window hard makes it hard for both arms, so that the paired standard error is far
below that of two independent means. The difference is a ratio of sums over windows; its error
follows from the windows' residuals (delta method).

Shapes: W windows, K kinds, N transitions.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shadow_model.arrays import open_archive
from shadow_model.errors import DataError
from shadow_model.nn.transitions import TRANSITIONS
from shadow_model.reading import reading
from shadow_model.table.layout import KINDS

WINDOWS = Path("final") / "heldout.npz"
TOTAL = "total"
_TABLES = {
    "sums": len(KINDS),
    "counts": len(KINDS),
    "transition_sums": len(TRANSITIONS),
    "transition_counts": len(TRANSITIONS),
}
_ARRAYS = ("starts", *_TABLES, "ctx_tokens")
_MAX_WINDOWS = 1 << 24


@dataclass(frozen=True)
class Windows:
    """An arm's last held-out evaluation.

    Attributes:
        starts: (W,) where the windows begin in the bin.
        sums: (W, K) nats summed over each kind's targets.
        counts: (W, K) targets of each kind.
        transition_sums: (W, N) the same nats by transition.
        transition_counts: (W, N).
        ctx_tokens: Tokens a window.
    """

    starts: np.ndarray
    sums: np.ndarray
    counts: np.ndarray
    transition_sums: np.ndarray
    transition_counts: np.ndarray
    ctx_tokens: int


def read_windows(path: Path) -> Windows | None:
    """Read an arm's windows; None where it kept none.

    Raises:
        DataError: The file is there and cannot be read, or its shapes do not fit one another.
    """
    if not os.path.lexists(path):
        return None
    fix = "Train the arm again."
    with (
        reading(DataError, path, "hold the losses of held-out windows", fix),
        open_archive(path, _ARRAYS) as archive,
    ):
        headers = {name: archive.members[name].header for name in _ARRAYS}
        found = {name: (h.shape, h.dtype.kind) for name, h in headers.items()}
        count = headers["starts"].shape[0] if headers["starts"].shape else 0
        num = min(count, _MAX_WINDOWS)
        wanted: dict[str, tuple[tuple[int, ...], str]] = {
            name: ((num, width), "f" if name.endswith("sums") else "iu")
            for name, width in _TABLES.items()
        }
        wanted |= {"starts": ((num,), "iu"), "ctx_tokens": ((), "iu")}
        if any(found[n][0] != shape or found[n][1] not in k for n, (shape, k) in wanted.items()):
            must = f"hold sums and counts of shape {(num, len(KINDS))}, whole starts and ctx_tokens"
            raise DataError(path, must, found, fix)
        arrays = {name: archive.read(name) for name in _ARRAYS}
    sums = [arrays[name] for name in _TABLES if name.endswith("sums")]
    counts = [arrays[name] for name in _TABLES if name.endswith("counts")]
    if not all(np.isfinite(a).all() for a in sums) or min(a.min(initial=0) for a in counts) < 0:
        raise DataError(path, "hold finite sums and counts from 0", "others", fix)
    ctx_tokens = int(arrays.pop("ctx_tokens"))
    return Windows(**arrays, ctx_tokens=ctx_tokens)


def paired_errors(proof: Windows | None, flat: Windows | None) -> dict[str, float]:
    """Return the standard error of flat minus proof, in nats a token.

    Keys are `TOTAL`, kinds and transitions that have targets.

    Empty unless both arms kept at least two windows, the very same ones.
    """
    if proof is None or flat is None or len(proof.starts) < 2:
        return {}
    same = proof.ctx_tokens == flat.ctx_tokens and np.array_equal(proof.starts, flat.starts)
    if not same or not np.array_equal(proof.counts, flat.counts):
        return {}
    gaps, counts = flat.sums - proof.sums, proof.counts
    errors = {TOTAL: _standard_error(gaps.sum(1), counts.sum(1))}
    moved, places = flat.transition_sums - proof.transition_sums, proof.transition_counts
    return {**errors, **_errors(KINDS, gaps, counts), **_errors(TRANSITIONS, moved, places)}


def _errors(names: Sequence[str], gaps: np.ndarray, counts: np.ndarray) -> dict[str, float]:
    columns = {name: (gaps[:, i], counts[:, i]) for i, name in enumerate(names)}
    return {name: _standard_error(*pair) for name, pair in columns.items() if pair[1].any()}


def _standard_error(gaps: np.ndarray, counts: np.ndarray) -> float:
    windows, total = len(counts), counts.sum()
    residuals = gaps - gaps.sum() / total * counts
    return float(np.sqrt((residuals**2).sum() * windows / (windows - 1)) / total)
