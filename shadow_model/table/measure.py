"""Figures of a table: how balanced, how far apart, and how true to the vectors its codes are.

Shapes: R rows, V rows with vectors, P pairs.
"""

import csv
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from shadow_model.errors import DataError
from shadow_model.reading import reading
from shadow_model.table.repair import hamming

_FIX = "Write one pair a line: word,word,rating."
_FIELDS = 3
_FEWEST_PAIRS = 3


class RatedPair(NamedTuple):
    """Two words and how alike people find them."""

    first: str
    second: str
    rating: float


def bit_balance(bits: np.ndarray) -> dict[str, float]:
    """Return the mean, least and greatest share of ones over the 512 bits."""
    ones = bits.mean(axis=0, dtype=np.float64)
    return {name: round(float(f(ones)), 4) for name, f in _EXTREMES.items()}


def mean_distance(bits: np.ndarray) -> float:
    """Return the mean Hamming distance over all pairs of rows (exact).

    A bit that is one in k of R rows differs in k (R - k) of the R (R - 1) / 2 pairs.
    """
    rows, ones = len(bits), bits.sum(axis=0, dtype=np.int64)
    return float((ones * (rows - ones)).sum() / max(1, rows * (rows - 1) // 2))


def cosine_agreement(
    packed: np.ndarray, vectors: np.ndarray, num_pairs: int, seed: int
) -> float | None:
    """Return Spearman's correlation of Hamming similarity with the cosine over random pairs.

    Args:
        packed: (V, 8) uint64 codes.
        vectors: (V, D) float32 of the same rows, from `prepare_vectors`.
        num_pairs: Pairs drawn.

    Returns:
        The correlation; None where all pairs are alike.
    """
    one, other = _draw_pairs(len(packed), num_pairs, seed)
    products = np.einsum("pd,pd->p", vectors[one], vectors[other])
    lengths = np.linalg.norm(vectors, axis=1)
    cosines = products / np.maximum(lengths[one] * lengths[other], np.float32(1e-12))
    return _spearman(-hamming(packed, one, other), cosines)


def distance_agreement(
    packed: np.ndarray, codebook: np.ndarray, num_pairs: int, seed: int
) -> float | None:
    """Return Spearman's correlation of Hamming distance with the codebook's over random pairs."""
    one, other = _draw_pairs(len(packed), num_pairs, seed)
    distances = np.linalg.norm(codebook[one] - codebook[other], axis=1)
    return _spearman(hamming(packed, one, other), distances)


def rating_agreement(
    pairs: list[RatedPair],
    row_of: Callable[[str], int | None],
    packed: np.ndarray,
    vectors: Mapping[int, np.ndarray],
) -> dict[str, Any]:
    """Compare the codes of single-piece words with human ratings.

    Args:
        pairs: From `read_ratings`.
        row_of: Row of a word that is a single piece, None for others.
        packed: (R, 8) uint64 codes.
        vectors: Row -> its prepared float vector, for the float vectors' own correlation.

    Returns:
        `spearman`, `float_spearman`, the number of `pairs` compared and `of` how many.
    """
    found = [(row_of(p.first), row_of(p.second), p.rating) for p in pairs]
    rated = [(a, b, rating) for a, b, rating in found if a is not None and b is not None]
    one, other = (np.array([pair[i] for pair in rated], np.int64) for i in (0, 1))
    ratings = np.array([pair[2] for pair in rated], np.float64)
    both = np.array([a in vectors and b in vectors for a, b, _ in rated], bool)
    cosines = np.array(
        [_cosine(vectors[a], vectors[b]) for a, b, _ in rated if a in vectors and b in vectors]
    )
    return {
        "spearman": _spearman(-hamming(packed, one, other), ratings),
        "float_spearman": _spearman(cosines, ratings[both]),
        "pairs": len(rated),
        "of": len(pairs),
    }


def read_ratings(path: Path) -> list[RatedPair]:
    """Read a CSV of word,word,rating; a first line without a number is a heading.

    Raises:
        DataError: The file is unreadable, a line is not such a pair, or there is none.
    """
    with (
        reading(DataError, path, "be a CSV of UTF-8 text", _FIX),
        path.open(encoding="utf-8", newline="") as file,
    ):
        lines = [(i, line) for i, line in enumerate(csv.reader(file), 1) if any(line)]
    if lines and len(lines[0][1]) == _FIELDS and _number(lines[0][1][2]) is None:
        lines = lines[1:]
    if not lines:
        raise DataError(path, "hold at least one pair of words", "none", _FIX)
    return [_rated_pair(path, number, line) for number, line in lines]


_EXTREMES: dict[str, Callable[[np.ndarray], Any]] = {"mean": np.mean, "min": np.min, "max": np.max}


def _rated_pair(path: Path, number: int, line: list[str]) -> RatedPair:
    rating = _number(line[2]) if len(line) == _FIELDS else None
    if rating is None or not line[0].strip() or not line[1].strip():
        raise DataError(f"{path}, line {number}", "be word,word,rating", line, _FIX)
    return RatedPair(line[0].strip(), line[1].strip(), rating)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _draw_pairs(num_rows: int, num_pairs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two (P,) arrays of rows, different in every pair."""
    rng = np.random.default_rng(seed)
    one = rng.integers(0, num_rows, num_pairs)
    return one, (one + rng.integers(1, max(2, num_rows), num_pairs)) % num_rows


def _spearman(one: np.ndarray, other: np.ndarray) -> float | None:
    if len(one) < _FEWEST_PAIRS or one.min() == one.max() or other.min() == other.max():
        return None
    return round(float(stats.spearmanr(one, other).statistic), 4)


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / max(float(np.linalg.norm(one) * np.linalg.norm(other)), 1e-12))
