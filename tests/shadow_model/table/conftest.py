"""A small language of topics, a tokenizer of it, and table inputs, for the tests of this folder."""

from collections.abc import Callable

import numpy as np
import pytest

from shadow_model.data.text import Pieces
from shadow_model.table.inputs import TableInputs

TOPICS = (
    ("river", "water", "fish", "boat", "stream", "lake"),
    ("engine", "wheel", "brake", "motor", "petrol", "axle"),
    ("violin", "piano", "melody", "chord", "rhythm", "song"),
    ("bread", "flour", "butter", "oven", "dough", "yeast"),
)


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Documents whose words keep to one of four topics; some are Capitalised, some SHOUTED."""
    rng = np.random.default_rng(0)
    documents = []
    for number in range(400):
        words = list(rng.choice(TOPICS[number % len(TOPICS)], 30))
        words[0] = words[0].capitalize()
        words[5] = words[5].upper()
        documents.append("the " + " and the ".join(words) + ".\n")
    return documents


@pytest.fixture(scope="session")
def pieces(texts: list[str]) -> Pieces:
    """A tokenizer in which most words are one piece."""
    return Pieces.train(texts, 480)


@pytest.fixture
def inputs(texts: list[str], pieces: Pieces) -> TableInputs:
    """Inputs of a text-only table whose ids are the tokenizer's."""
    ids = np.concatenate(pieces.encode_many(texts))
    return TableInputs(
        counts=np.bincount(ids, minlength=pieces.size),
        vocab=pieces.size,
        texts=lambda: texts,
        pieces=pieces,
    )


@pytest.fixture(scope="session")
def clustered() -> Callable[[int, int], np.ndarray]:
    """Draw (rows, dimensions) float32 around a tenth as many centres: near and far pairs."""

    def draw(num_rows: int, dimensions: int) -> np.ndarray:
        rng = np.random.default_rng(1)
        centres = rng.standard_normal((max(2, num_rows // 10), dimensions))
        noise = 0.5 * rng.standard_normal((num_rows, dimensions))
        return (centres[rng.integers(0, len(centres), num_rows)] + noise).astype(np.float32)

    return draw
