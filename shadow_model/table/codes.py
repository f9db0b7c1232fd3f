"""Float vectors -> 512-bit codes of the language rows.

Each vector set is L2-normalised, centred and normalised again, the sets are concatenated,
projected on their principal axes and rotated so that signs lose least (ITQ); each bit is cut at its
median, so that it is exactly balanced. Vectors of fewer dimensions than bits get several rotations.
What word vectors do not see of a piece (a leading space, capitals) goes into surface bits.

A *margin* is a bit's distance from its threshold, in that bit's standard deviations: the lower, the
less it matters if repair flips the bit; infinite where repair must not.

Shapes: V rows, D dimensions, N bits.

Source: Gong and Lazebnik, "Iterative Quantization: A Procrustean Approach to Learning Binary Codes"
(CVPR 2011), section 2.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shadow_model.progress import Progress, silent
from shadow_model.table.store import BITS

_SAMPLE_ROWS = 16_384
_NUM_SURFACE = 3
_RIDGE = 0.1


class Codes(NamedTuple):
    """Bits of some rows.

    Attributes:
        bits: (V, N) uint8 of 0 and 1.
        margins: (V, N) float32, see the module's docstring.
    """

    bits: np.ndarray
    margins: np.ndarray


def prepare_vectors(sets: Sequence[np.ndarray]) -> np.ndarray:
    """Normalise, centre and normalise each vector set, and set them side by side.

    Args:
        sets: (V, D_i) float arrays of the same V.

    Returns:
        (V, sum of D_i) float32; a row whose vector is its set's mean stays zero there.
    """
    return np.concatenate([_normalise(_centre(_normalise(x))) for x in sets], axis=1)


def language_codes(
    vectors: np.ndarray,
    num_bits: int,
    iterations: int,
    seed: int,
    progress: Progress = silent,
) -> Codes:
    """Turn prepared vectors into balanced bits by PCA, ITQ and median thresholds.

    Args:
        vectors: (V, D) float32 from `prepare_vectors`.
        num_bits: Bits a row (N).
        iterations: Rounds of ITQ.
        seed: Decides the sample and the first rotations.
    """
    rng = np.random.default_rng(seed)
    axes = _principal_axes(vectors)
    sample = vectors[np.sort(rng.permutation(len(vectors))[:_SAMPLE_ROWS])]
    codes = Codes(
        np.empty((len(vectors), num_bits), np.uint8), np.empty((len(vectors), num_bits), np.float32)
    )
    for first in range(0, num_bits, axes.shape[1]):
        progress(first, num_bits, "bits rotated")
        last = min(first + axes.shape[1], num_bits)
        block = np.ascontiguousarray(axes[:, : last - first])
        rotation = block @ itq_rotation(sample @ block, iterations, rng)
        for column in range(first, last):  # one bit at a time: no second float copy of all
            scores = vectors @ rotation[:, column - first]
            codes.bits[:, column], codes.margins[:, column] = threshold(scores)
    return codes


def extend_codes(known: np.ndarray, vectors: np.ndarray, new_vectors: np.ndarray) -> Codes:
    """Guess the codes of new rows from those of known rows, by ridge regression bit by bit.

    Args:
        known: (V, N) uint8, codes made elsewhere.
        vectors: (V, D) float32, prepared vectors of these rows.
        new_vectors: (M, D) float32, prepared vectors of the new rows.

    Returns:
        Codes of the new rows (M, N).
    """
    products = (vectors.T @ vectors).astype(np.float64)
    ridge = _RIDGE * np.trace(products) / len(products)
    signs = known.astype(np.float32) * 2 - 1
    weights = np.linalg.solve(products + ridge * np.eye(len(products)), vectors.T @ signs)
    return Codes(*threshold(new_vectors @ weights.astype(np.float32)))


def itq_rotation(sample: np.ndarray, iterations: int, rng: np.random.Generator) -> np.ndarray:
    """Find the rotation of centred data whose signs are nearest to it.

    Args:
        sample: (V, N) float32.

    Returns:
        (N, N) float32, orthogonal.
    """
    start = np.linalg.qr(rng.standard_normal((sample.shape[1],) * 2))[0]
    rotation = start.astype(np.float32)
    for _ in range(iterations):
        signs = np.sign(sample @ rotation)
        left, _, right = np.linalg.svd(sample.T @ signs)
        rotation = left @ right
    return rotation


def threshold(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cut scores at their median, column by column.

    Args:
        scores: (V,) or (V, N) float32.

    Returns:
        Bits (uint8) and margins (float32), both of the scores' shape.
    """
    centred = scores - np.median(scores, axis=0)
    scale = centred.std(axis=0)
    margins = np.abs(centred) / np.where(scale > 0, scale, 1)
    return (centred > 0).astype(np.uint8), margins.astype(np.float32)


def random_codes(num_rows: int, num_bits: int, seed: Sequence[int]) -> Codes:
    """Draw fair bits, all equally cheap to flip, for rows of which nothing is known."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, (num_rows, num_bits), dtype=np.uint8)
    return Codes(bits, np.zeros((num_rows, num_bits), np.float32))


def surface_codes(texts: Sequence[str], bits_each: int) -> Codes:
    """Spell what a piece looks like: leading space, Capital, ALL CAPS, a block of bits each.

    Every second bit is inverted, so that a row has as many ones as zeros whatever it looks like.

    Args:
        texts: Text of each piece (V).
        bits_each: Bits of a block.

    Returns:
        Bits (V, 3 * bits_each) that repair must not flip.
    """
    looks = np.array([_look(text) for text in texts], np.uint8).reshape(len(texts), _NUM_SURFACE)
    bits = np.repeat(looks, bits_each, axis=1) ^ (np.arange(_NUM_SURFACE * bits_each) % 2)
    return Codes(bits.astype(np.uint8), np.full(bits.shape, np.inf, np.float32))


def semantic_width(surface_bits: int) -> int:
    """Return the bits that are left for the vectors beside three blocks of surface bits."""
    return BITS - _NUM_SURFACE * surface_bits


def _look(text: str) -> tuple[bool, bool, bool]:
    letters = [c for c in text if c.isalpha()]
    shouted = len(letters) > 1 and all(c.isupper() for c in letters)
    return text.startswith(" "), bool(letters) and letters[0].isupper() and not shouted, shouted


def _principal_axes(vectors: np.ndarray) -> np.ndarray:
    """Return (D, min(D, BITS)) float32, the axes of largest variance first."""
    _, axes = np.linalg.eigh((vectors.T @ vectors).astype(np.float64))
    return axes[:, ::-1][:, :BITS].astype(np.float32)


def _centre(vectors: np.ndarray) -> np.ndarray:
    mean = vectors.sum(axis=0, dtype=np.float64) / max(1, len(vectors))
    return np.asarray(vectors - mean, dtype=np.float32)


def _normalise(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True).astype(np.float32)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)
