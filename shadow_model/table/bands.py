"""Codebook vectors of a picture, sound or clip band -> 512-bit codes.

A bit is the sign of cos(w.x + b) with random w and b, cut at its median: rows that are near in the
codebook share bits, and far ones share half of them. Half of the bits look at short distances, a
quarter each at two and at four times these, so that Hamming distance follows the true distance both
among neighbours and over the whole band.

Shapes: N codes, D dimensions.

Source: Raginsky and Lazebnik, "Locality-Sensitive Binary Codes from Shift-Invariant Kernels"
(NIPS 2009), section 2; Rahimi and Recht, "Random Features for Large-Scale Kernel Machines"
(NIPS 2007), section 3.
"""

import numpy as np

from shadow_model.errors import DataError
from shadow_model.table.codes import Codes, random_codes, threshold
from shadow_model.table.layout import BAND_ROWS, BANDS
from shadow_model.table.store import BITS

_SCALES = ((256, 0.25), (128, 0.5), (128, 1.0))
"""(bits, length scale as a part of the median distance between two codes)."""
_SAMPLE_PAIRS = 100_000


def band_codes(band: str, codebook: np.ndarray | None, seed: int) -> Codes:
    """Make the rows of one band.

    Args:
        band: Its name in files, one of `BANDS`.
        codebook: (N, D) float, N at most the band's rows; rows that it does not fill, or all if it
            is None, get random codes.
        seed: Decides the projections.

    Raises:
        DataError: The codebook is not such an array, or holds a NaN or an infinity.
    """
    rows, key = BAND_ROWS[band], (seed, 1 + BANDS.index(band))
    codes = random_codes(rows, BITS, key)
    if codebook is not None:
        _check_codebook(band, codebook)
        made = _fourier_codes(codebook.astype(np.float32), np.random.default_rng(key))
        codes.bits[: len(codebook)], codes.margins[: len(codebook)] = made
    return codes


def _fourier_codes(codebook: np.ndarray, rng: np.random.Generator) -> Codes:
    centred = codebook - codebook.mean(axis=0)
    distance = _median_distance(centred, rng)
    parts = []
    for num_bits, scale in _SCALES:
        frequencies = rng.standard_normal((centred.shape[1], num_bits), np.float32)
        shifts = rng.uniform(0, 2 * np.pi, num_bits).astype(np.float32)
        parts.append(threshold(np.cos(centred @ frequencies / (scale * distance) + shifts)))
    bits, margins = zip(*parts, strict=True)
    return Codes(np.concatenate(bits, axis=1), np.concatenate(margins, axis=1))


def _median_distance(vectors: np.ndarray, rng: np.random.Generator) -> np.float32:
    one, other = rng.integers(0, len(vectors), (2, _SAMPLE_PAIRS))
    distances = np.linalg.norm(vectors[one] - vectors[other], axis=1)
    distances = distances[distances > 0]
    return np.float32(np.median(distances)) if len(distances) else np.float32(1)


def _check_codebook(band: str, codebook: np.ndarray) -> None:
    where, fix = f"codebook of {band}", "Fit the codec again, or give another codebook."
    limit = BAND_ROWS[band]
    if codebook.ndim != 2 or codebook.dtype.kind != "f" or not 0 < len(codebook) <= limit:
        found = f"shape {codebook.shape} of {codebook.dtype}"
        raise DataError(where, f"be floats of shape (1..{limit}, dimensions)", found, fix)
    if not np.isfinite(codebook).all():
        bad = int(np.flatnonzero(~np.isfinite(codebook).all(axis=1))[0])
        raise DataError(where, "be finite", f"a NaN or infinity in row {bad}", fix)
