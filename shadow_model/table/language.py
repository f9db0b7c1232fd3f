"""Rows of the text pieces: which pieces get one, and their codes by the source that a recipe names.

Byte pieces always have a row, and random codes like every piece without a vector; rows of an
existing packed table stay as they are, bit for bit, and are fixed for repair.

Shapes: V text pieces, L language rows, D dimensions.
"""

from typing import Any, NamedTuple

import numpy as np

from shadow_model.errors import ConfigError, DataError
from shadow_model.progress import Progress, silent
from shadow_model.table.codes import (
    Codes,
    extend_codes,
    language_codes,
    prepare_vectors,
    random_codes,
    semantic_width,
    surface_codes,
)
from shadow_model.table.config import TableConfig
from shadow_model.table.inputs import TableInputs
from shadow_model.table.store import BITS
from shadow_model.table.vectors import match_rows, match_vectors, read_packed, read_vectors
from shadow_model.table.words import (
    CONTEXT_POWER,
    PieceVectors,
    no_vectors,
    piece_vectors,
    train_words,
)

_FEWEST_VECTORS = 16


class Language(NamedTuple):
    """The language rows.

    Attributes:
        old_ids: (L,) int64, ascending.
        codes: Bits and margins, (L, 512).
        fixed: (L,) bool, rows that must stay as they are.
        known: (K,) rows that have a float vector.
        vectors: (K, D) float32, their prepared vectors.
        num_semantic: The first bits of a row, those that come from its vector.
        figures: Where the codes came from, for the receipt.
    """

    old_ids: np.ndarray
    codes: Codes
    fixed: np.ndarray
    known: np.ndarray
    vectors: np.ndarray
    num_semantic: int
    figures: dict[str, Any]


def make_language(
    inputs: TableInputs, config: TableConfig, progress: Progress = silent
) -> Language:
    """Choose the pieces and make their codes.

    Raises:
        ConfigError: `num_lang` leaves no place for the byte pieces.
        DataError: The recipe's vectors do not fit the vocabulary, or an id lies outside it.
    """
    _check_tokenizer(inputs)
    source = _read_source(inputs, config, progress)
    size = len(source.rows)
    _check_ids(inputs, size)
    old_ids = choose_pieces(inputs.count(0, size), inputs.byte_ids, config.num_lang)
    rows = source.rows[old_ids]
    usable = source.found.known[old_ids] & ~np.isin(old_ids, inputs.byte_ids)
    known = np.flatnonzero(usable) if usable.sum() >= _FEWEST_VECTORS else np.empty(0, np.int64)
    vectors = prepare_vectors([source.found.vectors[old_ids[known]]])
    surface_bits = config.surface_bits if inputs.pieces is not None and source.bits is None else 0
    if source.bits is None:
        codes = _coded(inputs, old_ids, (known, vectors), config, surface_bits, progress)
    else:
        codes = _extended(source.bits, rows, (known, vectors), config.seed)
    figures = {**source.figures, "pieces": source.found.counts, "dimensions": vectors.shape[1]}
    figures |= {"rows_with_vectors": len(known), "rows_kept_bit_for_bit": int((rows >= 0).sum())}
    width = semantic_width(surface_bits)
    return Language(old_ids, codes, rows >= 0, known, vectors, width, figures)


def choose_pieces(counts: np.ndarray, byte_ids: np.ndarray, num_lang: int | None) -> np.ndarray:
    """Return the old ids that get a row, ascending: byte pieces, then the most frequent others.

    Args:
        counts: (V,) int64 occurrences.
        byte_ids: Pieces that are always kept.
        num_lang: Rows wanted; None or more than V: all.

    Raises:
        ConfigError: There are more byte pieces than rows.
    """
    size = len(counts)
    wanted = min(size, num_lang or size)
    if wanted < len(byte_ids):
        must = f"be at least the {len(byte_ids)} byte pieces"
        raise ConfigError("num_lang", must, num_lang, "Raise it, or leave it out to keep all.")
    rank = counts.astype(np.int64).copy()
    rank[byte_ids] = np.iinfo(np.int64).max
    return np.sort(np.lexsort((np.arange(size), -rank))[:wanted])


class _Source(NamedTuple):
    """What a recipe's source knows of every piece; `rows` point into `bits`, -1 where new."""

    rows: np.ndarray
    bits: np.ndarray | None
    found: PieceVectors
    figures: dict[str, Any]


def _read_source(inputs: TableInputs, config: TableConfig, progress: Progress) -> _Source:
    path, size, figures = config.vectors_path, inputs.vocab, {"source": config.vectors}
    if config.vectors == "packed" and path is not None:
        bits = read_packed(path)
        rows = match_rows(len(bits), path, inputs.pieces, config.tokenizer, size)
        if inputs.pieces is None:
            return _Source(rows, bits, no_vectors(len(rows)), figures)
        found, words = _from_corpus(inputs, config, progress)
        return _Source(rows, bits, found, figures | words)
    if config.vectors == "file" and path is not None:
        matrix = read_vectors(path, config.vectors_tensor)
        found = match_vectors(matrix, path, inputs.pieces, config.tokenizer, size)
    else:
        found, words = _from_corpus(inputs, config, progress)
        figures |= words
    return _Source(np.full(len(found.known), -1), None, found, figures)


def _from_corpus(
    inputs: TableInputs, config: TableConfig, progress: Progress
) -> tuple[PieceVectors, dict[str, Any]]:
    if inputs.pieces is None:
        fix = "Name the tokenizer in layout.json, or take vectors from a file or a packed table."
        raise DataError("ids", "name their tokenizer for corpus vectors", "none", fix)
    words = train_words(inputs.texts(), config, progress)
    figures = {"words_read": words.num_read, "words": len(words.row_of)}
    stated = {"window_words": config.window_words, "context_power": CONTEXT_POWER}
    return piece_vectors(inputs.pieces, words), {**figures, **stated}


def _check_tokenizer(inputs: TableInputs) -> None:
    if inputs.pieces is not None and inputs.vocab != inputs.pieces.size:
        must = f"state the vocabulary of its tokenizer, {inputs.pieces.size} ids"
        fix = "Correct its vocab, or name the tokenizer of these ids."
        raise DataError("layout.json", must, inputs.vocab, fix)


def _check_ids(inputs: TableInputs, size: int) -> None:
    if inputs.vocab is None and inputs.counts[size:].any():
        highest = int(np.flatnonzero(inputs.counts)[-1])
        fix = "Give the vectors of these ids, or a layout.json that says what they are."
        raise DataError("ids", f"be below the {size} rows of the vectors", highest, fix)


def _coded(
    inputs: TableInputs,
    old_ids: np.ndarray,
    known_vectors: tuple[np.ndarray, np.ndarray],
    config: TableConfig,
    surface_bits: int,
    progress: Progress,
) -> Codes:
    """Make codes from vectors, and surface bits where the pieces' texts are known."""
    codes, (known, vectors) = random_codes(len(old_ids), BITS, (config.seed, 0)), known_vectors
    width = semantic_width(surface_bits)
    if len(known):
        made = language_codes(vectors, width, config.itq_iterations, config.seed, progress)
        codes.bits[known, :width], codes.margins[known, :width] = made
    if inputs.pieces is not None and surface_bits:
        texts = [inputs.pieces.piece_text(int(i)) for i in old_ids]
        spelled = np.array([bool(text) for text in texts]) & ~np.isin(old_ids, inputs.byte_ids)
        seen = surface_codes(texts, surface_bits)
        codes.bits[spelled, width:] = seen.bits[spelled]
        codes.margins[spelled, width:] = seen.margins[spelled]
    return codes


def _extended(
    bits: np.ndarray, rows: np.ndarray, known_vectors: tuple[np.ndarray, np.ndarray], seed: int
) -> Codes:
    """Keep old rows; new ones with vectors follow them by regression, others are random."""
    codes, (known, vectors) = random_codes(len(rows), BITS, (seed, 0)), known_vectors
    codes.bits[rows >= 0] = bits[rows[rows >= 0]]
    old = rows[known] >= 0
    if old.sum() >= _FEWEST_VECTORS and not old.all():
        made = extend_codes(bits[rows[known[old]]], vectors[old], vectors[~old])
        codes.bits[known[~old]], codes.margins[known[~old]] = made
    return codes
