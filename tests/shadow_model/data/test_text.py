"""Pieces: nothing is lost, equal texts give equal pieces, and users' tokenizers are taken."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from shadow_model.data.text import Pieces
from shadow_model.errors import DataError

TEXTS = [
    "The quick brown fox jumps over the lazy dog.\n    return the value of the array\n",
    "Parameters\n----------\nx : array_like\n    The values of the array, in order.\n",
    "Größe, naïve, 東京 and the rest of the values\n",
] * 4
AWKWARD = [
    "",
    " ",
    "  two before and after  ",
    "tab\tand\r\nCRLF\rCR\n\n\n",
    "a sign that stands for a space: \u2581\u2581 here",
    "\u2585\u2047\ufffd\ufeff\u00a0\u200b\u0301",
    "nul \0 nul",
    "<unk> <s> <0x0A> <0xZZ>",
    "🦊👩‍👩‍👧‍👦 ﷽ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
]


@pytest.fixture(scope="module")
def pieces() -> Pieces:
    return Pieces.train(TEXTS, 400)


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


@given(st.text())
@example("\u2581")
def test_any_text_comes_back(pieces: Pieces, text: str) -> None:
    ids = pieces.encode(text)
    assert ids.dtype == np.int32
    assert pieces.decode(ids) == text


@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_texts_come_back(pieces: Pieces, text: str) -> None:
    assert pieces.decode(pieces.encode(text)) == text


@given(st.lists(st.sampled_from(AWKWARD + TEXTS)))
def test_many_are_encoded_as_one_by_one(pieces: Pieces, texts: list[str]) -> None:
    many = pieces.encode_many(texts)
    assert [ids.tolist() for ids in many] == [pieces.encode(text).tolist() for text in texts]


def test_training_is_repeatable_and_silent(
    pieces: Pieces, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    again = Pieces.train(iter(TEXTS), 400)
    assert "".join(capfd.readouterr()) == ""
    pieces.save(tmp_path / "a.model")
    again.save(tmp_path / "b.model")
    assert (tmp_path / "a.model").read_bytes() == (tmp_path / "b.model").read_bytes()


def test_frequent_words_become_pieces_of_their_own(pieces: Pieces) -> None:
    assert len(pieces.encode(" the")) == 1
    assert len(pieces.encode("    ")) == 1
    assert 256 < pieces.size <= 400


def test_a_small_text_yields_fewer_pieces_than_wanted() -> None:
    assert 256 < Pieces.train(["ab ab"], 10_000).size < 300


@pytest.mark.parametrize("texts", [[], [""], ["\u2581\0"]])
def test_nothing_to_learn_from_is_refused(texts: list[str]) -> None:
    with pytest.raises(DataError, match="num_pieces"):
        Pieces.train(texts, 400)


def test_a_saved_model_is_loaded(pieces: Pieces, tmp_path: Path) -> None:
    pieces.save(tmp_path / "pieces.model")
    loaded = Pieces.load(tmp_path / "pieces.model")
    assert loaded.suffix == ".model"
    assert loaded.encode(TEXTS[0]).tolist() == pieces.encode(TEXTS[0]).tolist()


def test_byte_pieces_spell_every_piece(pieces: Pieces) -> None:
    assert pieces.byte_ids.shape == (256,)
    for piece in range(pieces.size):
        spelt = pieces.byte_expansion(piece)
        assert set(spelt) <= set(pieces.byte_ids.tolist())
        assert pieces.decode(spelt) == pieces.decode([piece])
    assert pieces.byte_expansion(0) == []  # the unknown piece spells nothing


def test_the_text_of_a_piece_has_real_spaces(pieces: Pieces) -> None:
    assert pieces.piece_text(int(pieces.encode(" the")[0])) == " the"
    assert pieces.piece_text(int(pieces.byte_ids[0xE6])) == "\ufffd"


def test_a_byte_level_tokenizer_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    byte_level().save(str(path))
    pieces = Pieces.load(path)
    assert pieces.suffix == ".json"
    assert pieces.size == 300
    for text in (*TEXTS, *AWKWARD[1:]):
        assert pieces.decode(pieces.encode(text)) == text
    for piece in range(1, pieces.size):
        assert pieces.decode(pieces.byte_expansion(piece)) == pieces.decode([piece])
    assert pieces.byte_expansion(0) == []  # <|end|> is special
    pieces.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_a_tokenizer_without_bytes_expands_nothing(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    vocabulary = {"\u2581the": 0, "the": 1, "<0x0A>": 2}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.save(str(path))
    pieces = Pieces.load(path)
    assert pieces.byte_ids.shape == (0,)
    assert pieces.byte_expansion(1) == []
    assert [pieces.piece_text(i) for i in range(3)] == [" the", "the", "\n"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.model", b"no model"),
        ("a.model", b""),
        ("a.json", b"{"),
        ("a.json", b'{"model": 1}'),
        ("a.json", b"[]"),
    ],
)
def test_what_is_no_tokenizer_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match="be a tokenizer"):
        Pieces.load(tmp_path / name)


def test_an_absent_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.model"):
        Pieces.load(tmp_path / "absent.model")
