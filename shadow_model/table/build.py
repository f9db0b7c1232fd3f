"""Vocabulary, vectors and codebooks -> the whole table, and the figures that its receipt states.

Rows are made part by part, moved apart by repair over the whole table, and get as bias the
logarithm of their smoothed frequency in the training shards, as the remap stage will write them: a
piece without a row counts for the byte pieces that spell it.

Shapes: R rows, L language rows.
"""

import time
from typing import Any, NamedTuple

import numpy as np

from shadow_model.progress import Progress, silent
from shadow_model.table.bands import band_codes
from shadow_model.table.codes import Codes, random_codes
from shadow_model.table.config import TableConfig
from shadow_model.table.inputs import TableInputs
from shadow_model.table.language import Language, make_language
from shadow_model.table.layout import BAND_ROWS, BANDS, MARKS, REQUIRED_CONTROLS, Layout
from shadow_model.table.measure import (
    bit_balance,
    cosine_agreement,
    distance_agreement,
    mean_distance,
    rating_agreement,
    read_ratings,
)
from shadow_model.table.repair import Repaired, minimum_distance, pack_rows, repair
from shadow_model.table.store import BITS, Table


class MadeTable(NamedTuple):
    """A table and its figures, plain values for a receipt."""

    table: Table
    figures: dict[str, Any]


def make_table(inputs: TableInputs, config: TableConfig, progress: Progress = silent) -> MadeTable:
    """Make a table.

    Raises:
        ConfigError: `num_lang` leaves no place for the byte pieces.
        DataError: Vectors, codebooks or ratings that cannot be used; ids outside the vocabulary.
        LayoutError: Rows of a packed table are equal.
    """
    ratings = read_ratings(config.ratings) if config.ratings else None
    clock = _Clock()
    language = make_language(inputs, config, progress)
    clock.lap("language")
    layout = Layout(num_lang=len(language.old_ids), controls=_control_names(inputs))
    codes = _all_codes(inputs, layout, language, config.seed)
    clock.lap("bands")
    counts, lost = row_counts(inputs, layout, language.old_ids)
    repaired = _repaired(codes, counts, language, config, progress)
    clock.lap("repair")
    bias = log_unigram(counts, config.bias_smoothing)
    table = Table(repaired.bits, bias, layout, language.old_ids)
    known = 1 if repaired.num_fixed_pairs else config.min_distance
    figures = {
        "rows": _rows(layout),
        "vectors": language.figures,
        "bands": {b: "codebook" if b in inputs.codebooks else "random" for b in BANDS},
        "bias": {
            "tokens": int(counts.sum()),
            "tokens_without_row": lost,
            "smoothing": config.bias_smoothing,
        },
        "repair": {"min_distance": config.min_distance, **_repair_figures(repaired)},
        **measure_table(table, language, inputs, config, known),
    }
    if ratings is not None:
        figures["ratings"] = _compare_ratings(table, language, inputs, ratings)
    clock.lap("measure")
    return MadeTable(table, {**figures, "seconds": clock.seconds})


def row_counts(
    inputs: TableInputs, layout: Layout, lang_old_ids: np.ndarray
) -> tuple[np.ndarray, int]:
    """Count every row's tokens as remap will write them.

    Returns:
        (R,) int64, and the tokens that have no row and cannot be spelled by byte pieces.
    """
    counts, lost = np.zeros(layout.num_rows, np.int64), 0
    text = inputs.count(0, len(inputs.counts) if inputs.vocab is None else inputs.vocab)
    counts[: layout.num_lang] = inputs.count(0, int(lang_old_ids[-1]) + 1)[lang_old_ids]
    absent = np.setdiff1d(np.flatnonzero(text), lang_old_ids)
    for piece in absent.tolist():
        spelled = inputs.pieces.byte_expansion(piece) if inputs.pieces is not None else []
        np.add.at(counts, np.searchsorted(lang_old_ids, spelled), text[piece])
        lost += 0 if spelled else int(text[piece])
    for band, (first, number) in inputs.bands.items():
        row = layout.offsets[band]
        counts[row : row + number] = inputs.count(first, number)
    for name, old_id in inputs.marks.items():
        counts[layout.marks[name]] = inputs.count(old_id)[0]
    for name, old_id in inputs.controls.items():
        counts[layout.control(name)] = inputs.count(old_id)[0]
    return counts, lost


def log_unigram(counts: np.ndarray, smoothing: float) -> np.ndarray:
    """Return (R,) float32: log((count + smoothing) / (all counts + R * smoothing))."""
    total = counts.sum() + len(counts) * smoothing
    return np.asarray(np.log((counts + smoothing) / total), dtype=np.float32)


def measure_table(
    table: Table, language: Language, inputs: TableInputs, config: TableConfig, known: int = 1
) -> dict[str, Any]:
    """Return balance, distances, collisions and rank correlations of a finished table.

    Args:
        known: A distance that no two rows are below, for sure.
    """
    packed = pack_rows(table.bits)
    least = minimum_distance(packed, known)
    agreement = {}
    if len(language.known):
        bits = table.bits[language.known]
        for name, width in (("language", BITS), ("language_semantic", language.num_semantic)):
            part = np.where(np.arange(BITS) < width, bits, 0)
            agreement[name] = cosine_agreement(
                pack_rows(part), language.vectors, config.measured_pairs, config.seed
            )
    for band, codebook in inputs.codebooks.items():
        rows = packed[table.layout.offsets[band] :][: len(codebook)]
        agreement[band] = distance_agreement(rows, codebook, config.measured_pairs, config.seed)
    return {
        "bit_balance": bit_balance(table.bits),
        "hamming": {"min": least, "mean": round(mean_distance(table.bits), 2)},
        "collisions": len(packed) - len(np.unique(packed, axis=0)),
        "rank_correlation": {**agreement, "pairs": config.measured_pairs},
    }


class _Clock:
    """Wall-clock seconds of the steps, one after another."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, step: str) -> None:
        now = time.perf_counter()
        self.seconds[step] = round(now - self._last, 2)
        self._last = now


def _control_names(inputs: TableInputs) -> tuple[str, ...]:
    own = sorted(inputs.controls, key=lambda name: inputs.controls[name])
    return (*REQUIRED_CONTROLS, *(name for name in own if name not in REQUIRED_CONTROLS))


def _all_codes(inputs: TableInputs, layout: Layout, language: Language, seed: int) -> Codes:
    """Put the rows of all parts into two arrays: language, bands, markers and controls."""
    shape = (layout.num_rows, BITS)
    codes = Codes(np.empty(shape, np.uint8), np.empty(shape, np.float32))
    _place(codes, 0, language.codes)
    for band in BANDS:
        _place(codes, layout.offsets[band], band_codes(band, inputs.codebooks.get(band), seed))
    special = layout.marks[MARKS[0]]
    _place(codes, special, random_codes(layout.num_rows - special, BITS, (seed, 1 + len(BANDS))))
    return codes


def _repaired(
    codes: Codes, counts: np.ndarray, language: Language, config: TableConfig, progress: Progress
) -> Repaired:
    fixed = np.zeros(len(counts), bool)
    fixed[: len(language.fixed)] = language.fixed
    return repair(
        codes.bits,
        codes.margins,
        counts,
        min_distance=config.min_distance,
        fixed=fixed,
        seed=config.seed,
        progress=progress,
    )


def _repair_figures(repaired: Repaired) -> dict[str, int]:
    return {
        "close_pairs": repaired.num_pairs,
        "close_pairs_kept": repaired.num_fixed_pairs,
        "rows_changed": repaired.num_changed,
        "rounds": repaired.rounds,
    }


def _place(codes: Codes, first: int, part: Codes) -> None:
    codes.bits[first : first + len(part.bits)] = part.bits
    codes.margins[first : first + len(part.bits)] = part.margins


def _rows(layout: Layout) -> dict[str, int]:
    special = {"markers": len(MARKS), "controls": len(layout.controls)}
    return {"language": layout.num_lang, **BAND_ROWS, **special, "all": layout.num_rows}


def _compare_ratings(
    table: Table, language: Language, inputs: TableInputs, ratings: list[Any]
) -> dict[str, Any]:
    rows: dict[str, int] = {}
    if inputs.pieces is not None:
        texts = (inputs.pieces.piece_text(int(i)) for i in language.old_ids)
        rows = {text: row for row, text in enumerate(texts)}
    vectors = dict(zip(language.known.tolist(), language.vectors, strict=True))

    def row_of(word: str) -> int | None:
        names = (f" {word}", word, f" {word.lower()}", word.lower())
        return next((rows[name] for name in names if name in rows), None)

    return rating_agreement(ratings, row_of, pack_rows(table.bits), vectors)
