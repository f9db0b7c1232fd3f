"""The difference of two arms on the same held-out windows, window by window.

What makes a window hard makes it hard for both arms, so that the paired standard error is far
below that of two independent means. The difference is a ratio of sums over windows; its error
follows from the windows' residuals (delta method).

Shapes: W windows, K kinds.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shadow_model.errors import DataError
from shadow_model.table.layout import KINDS

WINDOWS = Path("final") / "heldout.npz"
TOTAL = "total"


@dataclass(frozen=True)
class Windows:
    """An arm's last held-out evaluation.

    Attributes:
        starts: (W,) where the windows begin in the bin.
        sums: (W, K) nats summed over each kind's targets.
        counts: (W, K) targets of each kind.
        ctx_tokens: Tokens a window.
    """

    starts: np.ndarray
    sums: np.ndarray
    counts: np.ndarray
    ctx_tokens: int


def read_windows(path: Path) -> Windows | None:
    """Read an arm's windows; None where it kept none.

    Raises:
        DataError: The file is there and cannot be read, or its shapes do not fit one another.
    """
    if not path.is_file():
        return None
    fix = "Train the arm again."
    try:
        with np.load(path, allow_pickle=False) as file:
            windows = Windows(file["starts"], file["sums"], file["counts"], int(file["ctx_tokens"]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(path, "hold the losses of held-out windows", error, fix) from error
    shape = (len(windows.starts), len(KINDS))
    if windows.sums.shape != shape or windows.counts.shape != shape:
        found = (windows.sums.shape, windows.counts.shape)
        raise DataError(path, f"hold sums and counts of shape {shape}", found, fix)
    return windows


def paired_errors(proof: Windows | None, flat: Windows | None) -> dict[str, float]:
    """Return the standard error of flat minus proof, in nats a token, by kind and `TOTAL`.

    Empty unless both arms kept at least two windows, the very same ones.
    """
    if proof is None or flat is None or len(proof.starts) < 2:
        return {}
    same = proof.ctx_tokens == flat.ctx_tokens and np.array_equal(proof.starts, flat.starts)
    if not same or not np.array_equal(proof.counts, flat.counts):
        return {}
    gaps, counts = flat.sums - proof.sums, proof.counts
    errors = {TOTAL: _standard_error(gaps.sum(1), counts.sum(1))}
    for index, kind in enumerate(KINDS):
        if counts[:, index].any():
            errors[kind] = _standard_error(gaps[:, index], counts[:, index])
    return errors


def _standard_error(gaps: np.ndarray, counts: np.ndarray) -> float:
    windows, total = len(counts), counts.sum()
    residuals = gaps - gaps.sum() / total * counts
    return float(np.sqrt((residuals**2).sum() * windows / (windows - 1)) / total)
