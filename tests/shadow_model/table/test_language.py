from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shadow_model.errors import ConfigError, DataError
from shadow_model.table.config import TableConfig
from shadow_model.table.inputs import TableInputs
from shadow_model.table.language import choose_pieces, make_language
from shadow_model.table.words import train_words

CONFIG = TableConfig(dimensions=12, itq_iterations=5)


def test_most_frequent_pieces_are_kept_and_bytes_always() -> None:
    counts = np.array([0, 7, 5, 9, 5, 1])
    assert choose_pieces(counts, np.array([0, 5]), 4).tolist() == [0, 1, 3, 5]
    assert choose_pieces(counts, np.empty(0, np.int64), 3).tolist() == [1, 2, 3]
    assert choose_pieces(counts, np.array([0]), None).tolist() == list(range(6))
    assert choose_pieces(counts, np.array([0]), 99).tolist() == list(range(6))
    with pytest.raises(ConfigError, match=r"num_lang.*2 byte pieces"):
        choose_pieces(counts, np.array([0, 5]), 1)


def test_corpus_codes_follow_topics(inputs: TableInputs, pieces) -> None:
    made = make_language(inputs, CONFIG)
    row = {pieces.piece_text(int(i)): r for r, i in enumerate(made.old_ids)}

    def shared(one: str, other: str) -> int:
        bits = made.codes.bits[:, : made.num_semantic]
        return int((bits[row[one]] == bits[row[other]]).sum())

    near = [shared(" river", w) for w in (" water", " fish", " boat")]
    far = [shared(" river", w) for w in (" piano", " wheel", " oven")]
    assert min(near) > max(far)
    assert made.num_semantic == 464
    assert made.figures["rows_with_vectors"] == len(made.known) == len(made.vectors) > 20
    assert not made.fixed.any()


def test_surface_bits_tell_forms_of_a_word_apart(inputs: TableInputs, pieces) -> None:
    made = make_language(inputs, CONFIG)
    row = {pieces.piece_text(int(i)): r for r, i in enumerate(made.old_ids)}
    words = [f" {word}" for word in train_words(inputs.texts(), CONFIG).row_of]
    pairs = [(row[w], row[w.upper()]) for w in words if w in row and w.upper() in row]
    assert pairs
    for one, other in pairs:
        differ = made.codes.bits[one] != made.codes.bits[other]
        assert differ[464:].sum() == 16
        assert not differ[:464].any()


def test_byte_pieces_have_random_codes(inputs: TableInputs, pieces) -> None:
    made = make_language(inputs, CONFIG)
    rows = np.searchsorted(made.old_ids, pieces.byte_ids)
    assert not np.isin(rows, made.known).any()
    assert not made.codes.margins[rows].any()
    assert made.codes.bits[rows].mean() == pytest.approx(0.5, abs=0.01)  # 7 standard errors


def test_file_source_without_a_tokenizer_or_layout(clustered, tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", clustered(300, 32))
    config = CONFIG.replace(vectors="file", vectors_path=tmp_path / "m.npy")
    made = make_language(TableInputs(np.arange(250), None, lambda: ()), config)
    assert made.old_ids.tolist() == list(range(300))
    assert made.num_semantic == 512
    assert len(made.known) == 300
    kept = make_language(
        TableInputs(np.arange(250), None, lambda: ()), config.replace(num_lang=100)
    )
    assert kept.old_ids.tolist() == list(range(150, 250))


def test_ids_beyond_the_vectors_are_refused(clustered, tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", clustered(30, 8))
    config = CONFIG.replace(vectors="file", vectors_path=tmp_path / "m.npy")
    with pytest.raises(DataError, match=r"below the 30 rows.*41"):
        make_language(TableInputs(np.ones(42, np.int64), None, lambda: ()), config)


def test_corpus_vectors_need_a_tokenizer() -> None:
    with pytest.raises(DataError, match="tokenizer"):
        make_language(TableInputs(np.ones(9, np.int64), 9, lambda: ()), CONFIG)


def test_layout_of_another_tokenizer_is_refused(inputs: TableInputs) -> None:
    with pytest.raises(DataError, match=r"layout\.json.*vocabulary of its tokenizer"):
        make_language(replace(inputs, vocab=inputs.vocab + 1), CONFIG)


def test_packed_rows_are_kept_bit_for_bit_and_new_ones_follow(
    inputs: TableInputs, tmp_path: Path
) -> None:
    """The first pieces have codes of old; a new word gets one near to its topic's old words."""
    whole = make_language(inputs, CONFIG.replace(surface_bits=0))
    first = len(whole.old_ids) - 12
    old = whole.codes.bits[:first].copy()
    assert len(np.unique(old, axis=0)) < first  # forms of a word share theirs without surface bits
    old[:, :24] ^= np.random.default_rng(0).integers(0, 2, (first, 24), dtype=np.uint8)
    np.save(tmp_path / "old.npy", np.packbits(old, axis=1))
    made = make_language(
        inputs, CONFIG.replace(vectors="packed", vectors_path=tmp_path / "old.npy")
    )
    assert np.array_equal(made.codes.bits[:first], old)
    assert made.fixed.tolist() == [True] * first + [False] * 12
    assert made.figures["rows_kept_bit_for_bit"] == first
    new = made.known[made.known >= first]
    assert len(new) > 0
    true, guessed = whole.codes.bits[new, 24:], made.codes.bits[new, 24:]
    assert (true == guessed).mean() > 0.6  # chance: 0.5


def test_packed_table_alone(tmp_path: Path) -> None:
    bits = np.random.default_rng(0).integers(0, 2, (40, 512), dtype=np.uint8)
    np.save(tmp_path / "old.npy", np.packbits(bits, axis=1))
    config = CONFIG.replace(vectors="packed", vectors_path=tmp_path / "old.npy")
    made = make_language(TableInputs(np.ones(30, np.int64), None, lambda: ()), config)
    assert np.array_equal(made.codes.bits, bits)
    assert made.fixed.all()
