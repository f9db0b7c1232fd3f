import numpy as np
import pytest

from shadow_model.table.codes import prepare_vectors
from shadow_model.table.config import TableConfig
from shadow_model.table.words import Words, piece_vectors, train_words

CONFIG = TableConfig(dimensions=12)


@pytest.fixture(scope="module")
def words(texts: list[str]) -> Words:
    return train_words(texts, CONFIG)


def _cosine(words: Words, one: str, other: str) -> float:
    vectors = prepare_vectors([words.vectors])
    return float(vectors[words.row_of[one]] @ vectors[words.row_of[other]])


def test_words_of_one_topic_are_nearer(words: Words) -> None:
    assert words.vectors.shape == (len(words.row_of), 12)
    same = [_cosine(words, "river", w) for w in ("water", "fish", "boat")]
    other = [_cosine(words, "river", w) for w in ("piano", "wheel", "oven")]
    assert min(same) > max(other) + 0.3


def test_case_is_folded_and_spellings_are_counted(words: Words) -> None:
    assert "River" not in words.row_of
    assert words.spellings["River"] > 0
    assert words.spellings["RIVER"] > 0
    assert words.num_read == sum(words.spellings.values())


def test_window_does_not_reach_across_a_paragraph() -> None:
    near = ["red blue\n\ngreen grey"] * 20
    words = train_words(near, TableConfig(dimensions=3, window_words=5))
    assert _cosine(words, "red", "green") < 0.1
    flowing = ["red blue green grey"] * 20
    assert not np.allclose(
        words.vectors, train_words(flowing, TableConfig(dimensions=3)).vectors, atol=1e-3
    )


def test_rare_words_and_too_many_words_get_no_vector(texts: list[str]) -> None:
    rare = train_words([*texts, "hapax legomenon"], CONFIG)
    assert "hapax" not in rare.row_of
    assert len(train_words(texts, TableConfig(max_words=10, dimensions=4)).row_of) == 10


@pytest.mark.parametrize("texts", [[], ["", "12 34\n"], ["a b"]])
def test_text_without_words_gives_no_vectors(texts: list[str]) -> None:
    assert train_words(texts, CONFIG).vectors.size == 0


def test_vectors_repeat_bit_for_bit(texts: list[str], words: Words) -> None:
    assert np.array_equal(train_words(texts, CONFIG).vectors, words.vectors)


def test_pieces_take_the_vector_of_their_word(pieces, words: Words) -> None:
    found = piece_vectors(pieces, words)
    places = {pieces.piece_text(i): i for i in range(pieces.size)}
    own = [text for text in places if text.strip().lower() in words.row_of]
    assert len(own) > 20
    for text in own:
        vector = words.vectors[words.row_of[text.strip().lower()]]
        assert np.array_equal(found.vectors[places[text]], vector)
    assert found.known[places[" river"]]


def test_other_pieces_take_the_mean_of_words_they_begin_or_are_part_of(pieces, words) -> None:
    found = piece_vectors(pieces, words)
    begins: dict[int, list[tuple[int, np.ndarray]]] = {}
    for word, count in words.spellings.items():
        if word.lower() in words.row_of:
            first = int(pieces.encode(f" {word}")[0])
            vector = words.vectors[words.row_of[word.lower()]]
            begins.setdefault(first, []).append((count, vector))
    checked = 0
    for piece, used in begins.items():
        text = pieces.piece_text(piece)
        if text.strip().lower() in words.row_of or not text.strip():
            continue
        mean = sum(n * v for n, v in used) / sum(n for n, _ in used)
        assert np.allclose(found.vectors[piece], mean, atol=1e-5)  # float32 sums
        checked += 1
    assert checked == found.counts["begins"] > 0


def test_pieces_without_letters_get_no_vector(pieces, words: Words) -> None:
    found = piece_vectors(pieces, words)
    assert not found.known[pieces.byte_ids[10]]
    assert found.counts["none"] == (~found.known).sum()
    assert sum(found.counts.values()) == pieces.size
