"""Word vectors of the training text, and pieces that take them from their words.

Words (runs of letters, lower-cased) are counted with their neighbours up to a window, one at
distance n counting 1/n, never across a paragraph. Positive pointwise mutual information, contexts
smoothed by the power 0.75, is factorised by a truncated singular value decomposition; a word's
vector is U * sqrt(S). Vectors of whole words follow people's judgement better than those of pieces.

Shapes: W words, D dimensions, V pieces.

Source: Levy, Goldberg and Dagan, "Improving Distributional Similarity with Lessons Learned from
Word Embeddings" (TACL 2015), section 3; Halko, Martinsson and Tropp, "Finding Structure with
Randomness" (SIAM Review 2011), algorithm 4.4.
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from scipy import sparse

from shadow_model.progress import Progress, silent
from shadow_model.table.config import TableConfig
from shadow_model.table.vocabulary import Vocabulary

_WORD = re.compile(r"[^\W\d_]+")
_BREAK = re.compile(r"\n\s*\n")
CONTEXT_POWER = 0.75
_OVERSAMPLING = 20
_POWER_ROUNDS = 3
_CHUNK_WORDS = 2_000_000
_NONE = -1
_MAX_SPELLINGS = 200_000


class Words(NamedTuple):
    """Words with vectors.

    Attributes:
        row_of: Lower-cased word -> row of `vectors`.
        vectors: (W, D) float32; D is 0 where the text has too few words.
        spellings: Word as written -> occurrences.
        num_read: Words of the text, known or not.
    """

    row_of: dict[str, int]
    vectors: np.ndarray
    spellings: Mapping[str, int]
    num_read: int


class PieceVectors(NamedTuple):
    """Vectors of pieces.

    Attributes:
        vectors: (V, D) float32.
        known: (V,) bool: pieces that have a vector.
        counts: How many pieces got theirs in which way.
    """

    vectors: np.ndarray
    known: np.ndarray
    counts: dict[str, int]


def train_words(texts: Iterable[str], config: TableConfig, progress: Progress = silent) -> Words:
    """Count words and factorise their mutual information.

    Args:
        texts: Documents; read once.
        config: Window, dimensions, number of words and seed.
    """
    stream, spellings, num_read = _read_words(texts, config.window_words)
    totals: Counter[str] = Counter()
    for spelling, count in spellings.items():
        totals[spelling.lower()] += count
    frequent = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[: config.max_words]
    index = {w: i for i, (w, n) in enumerate(frequent) if n >= config.min_word_count}
    if len(index) <= 2:
        return Words({}, np.zeros((0, 0), np.float32), spellings, num_read)
    ids = np.array([index.get(w.lower(), _NONE) for w in spellings] + [_NONE])[stream]
    information = _positive_information(_count_neighbours(ids, len(index), config.window_words))
    progress(0, 1, f"vectors of {len(index)} words")
    dimensions = min(config.dimensions, len(index) - 1)
    vectors = _factorise(information, dimensions, config.seed)
    return Words(index, vectors, spellings, num_read)


def piece_vectors(pieces: Vocabulary, words: Words) -> PieceVectors:
    """Give each piece the vector of its word, of the words that it begins, or is part of.

    A piece that is itself a word takes that word's vector; else the mean over the words whose first
    piece it is, by their occurrences; else over the words that have it elsewhere.
    """
    size, dimensions = pieces.size, words.vectors.shape[1]
    texts = [pieces.piece_text(piece) for piece in range(size)]
    own = np.array([words.row_of.get(text.strip().lower(), _NONE) for text in texts])
    lettered = np.array([any(c.isalpha() for c in text) for text in texts])
    vectors, known = np.zeros((size, dimensions), np.float32), own >= 0
    vectors[known] = words.vectors[own[known]]
    counts = {"word": int(known.sum())}
    for name, share in zip(("begins", "part"), _shares(pieces, words), strict=True):
        taken = ~known & lettered & (np.diff(share.indptr) > 0)
        vectors[taken] = share[taken] @ words.vectors
        known |= taken
        counts[name] = int(taken.sum())
    return PieceVectors(vectors, known, {**counts, "none": int((~known).sum())})


def no_vectors(size: int) -> PieceVectors:
    """Return the vectors of `size` pieces of which nothing is known: of no dimension."""
    return PieceVectors(np.zeros((size, 0), np.float32), np.zeros(size, bool), {})


def _read_words(texts: Iterable[str], window: int) -> tuple[np.ndarray, dict[str, int], int]:
    """Return the text as numbers of spellings, spellings with their counts, and words in all."""
    numbers: dict[str, int] = {}
    stream, gap = array("i"), array("i", [_NONE] * window)
    for text in texts:
        for paragraph in _BREAK.split(text):
            words = _WORD.findall(paragraph)
            stream.extend(numbers.setdefault(word, len(numbers)) for word in words)
            stream.extend(gap)  # no window reaches across it
    read = np.frombuffer(stream, np.int32) if stream else np.zeros(0, np.int32)
    occurrences = np.bincount(read[read >= 0], minlength=len(numbers))
    spellings = dict(zip(numbers, occurrences.tolist(), strict=True))
    return read, spellings, int(occurrences.sum())


def _count_neighbours(ids: np.ndarray, num_words: int, window: int) -> sparse.csr_matrix:
    """Return (W, W) float32, symmetric: how often words stand near each other, near ones more."""
    total = sparse.csr_matrix((num_words, num_words), dtype=np.float32)
    for first in range(0, len(ids), _CHUNK_WORDS):
        for step in range(1, window + 1):
            one = ids[first : first + _CHUNK_WORDS]
            other = ids[first + step : first + step + _CHUNK_WORDS]
            one = one[: len(other)]
            both = (one >= 0) & (other >= 0)
            ones = np.full(int(both.sum()), 1 / step, np.float32)
            total = total + sparse.csr_matrix((ones, (one[both], other[both])), total.shape)
    return total + total.T


def _positive_information(near: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return the positive part of log p(word, context) / (p(word) p(context)), (W, W) float32."""
    occurrences = np.asarray(near.sum(axis=1), np.float64).ravel()
    smoothed = occurrences**CONTEXT_POWER
    entries = near.tocoo()
    expected = occurrences[entries.row] * (smoothed / smoothed.sum())[entries.col]
    information = np.log(entries.data / expected).astype(np.float32)
    kept = information > 0
    places = (entries.row[kept], entries.col[kept])
    return sparse.csr_matrix((information[kept], places), near.shape)


def _factorise(matrix: sparse.csr_matrix, dimensions: int, seed: int) -> np.ndarray:
    """Return U * sqrt(S) of the largest singular values: (W, dimensions) float32."""
    rng, transposed = np.random.default_rng(seed), matrix.T.tocsr()
    width = min(dimensions + _OVERSAMPLING, matrix.shape[0])
    basis = rng.standard_normal((matrix.shape[0], width), np.float32)
    for _ in range(_POWER_ROUNDS):
        basis = np.linalg.qr(matrix @ basis)[0]
        basis = np.linalg.qr(transposed @ basis)[0]
    basis = np.linalg.qr(matrix @ basis)[0]
    left, values, _ = np.linalg.svd((transposed @ basis).T, full_matrices=False)
    return np.asarray(basis @ left[:, :dimensions] * np.sqrt(values[:dimensions]), dtype=np.float32)


def _shares(pieces: Vocabulary, words: Words) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Return two (V, W) matrices of weights: words that a piece begins, words it else is in."""
    known = [(w, n) for w, n in words.spellings.items() if w.lower() in words.row_of]
    known = sorted(known, key=lambda item: (-item[1], item[0]))[:_MAX_SPELLINGS]
    spelled = pieces.encode_many([f" {word}" for word, _ in known])
    lengths = np.array([len(ids) for ids in spelled], np.int64)
    flat = np.concatenate([np.zeros(0, np.int32), *spelled])
    columns = np.repeat([words.row_of[word.lower()] for word, _ in known], lengths)
    weights = np.repeat(np.array([n for _, n in known], np.float32), lengths)
    first = np.zeros(len(flat), bool)
    first[np.cumsum(lengths)[lengths > 0] - lengths[lengths > 0]] = True
    return (
        _mean_matrix(flat[first], columns[first], weights[first], pieces.size, len(words.row_of)),
        _mean_matrix(
            flat[~first], columns[~first], weights[~first], pieces.size, len(words.row_of)
        ),
    )


def _mean_matrix(
    rows: np.ndarray, columns: np.ndarray, weights: np.ndarray, num_rows: int, num_columns: int
) -> sparse.csr_matrix:
    matrix = sparse.csr_matrix((weights, (rows, columns)), (num_rows, num_columns))
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    return sparse.diags(1 / np.where(sums > 0, sums, 1)).tocsr() @ matrix
