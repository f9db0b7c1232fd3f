"""The search, the fit and the neighbour regression behind every codec."""

import numpy as np
import pytest

from shadow_model.data.codebook import (
    CodecConfig,
    NeighbourDecoder,
    ResidualCodebook,
    fit_codebook,
    fit_decoder,
)

CONFIG = CodecConfig(first=8, second=4, candidates=8, components=3)


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    """Clusters of clusters, so that two stages fit them well."""
    rng = np.random.default_rng(3)
    coarse, fine = rng.normal(0, 4, (8, 3)), rng.normal(0, 1, (4, 3))
    pairs = rng.integers(0, 8, 2000), rng.integers(0, 4, 2000)
    return (coarse[pairs[0]] + fine[pairs[1]] + rng.normal(0, 0.05, (2000, 3))).astype(np.float32)


def test_code_of_a_pair_stands_for_their_sum() -> None:
    first = np.array([[10.0], [20.0]], np.float32)
    second = np.array([[1.0], [2.0], [3.0]], np.float32)

    book = ResidualCodebook(first, second)

    np.testing.assert_array_equal(book.vectors.ravel(), [11, 12, 13, 21, 22, 23])
    np.testing.assert_array_equal(book.encode(book.vectors, 2), np.arange(6))


def test_search_over_all_candidates_equals_search_over_all_codes(vectors: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    book = ResidualCodebook(
        rng.normal(0, 3, (8, 3)).astype("f4"), rng.normal(0, 3, (4, 3)).astype("f4")
    )

    codes = book.encode(vectors[:500], candidates=8)

    distances = ((vectors[:500, None] - book.vectors[None]) ** 2).sum(2)
    # the two ways of summing round differently: the found distance may exceed the least by 1e-4
    np.testing.assert_allclose(distances[np.arange(500), codes], distances.min(1), atol=1e-4)


def test_more_candidates_never_fit_worse(vectors: np.ndarray) -> None:
    book = fit_codebook(vectors, CONFIG.replace(refinements=0), seed=0)

    errors = [((vectors - book.vectors[book.encode(vectors, n)]) ** 2).mean() for n in (1, 2, 8)]

    assert errors[0] >= errors[1] >= errors[2]


def test_refinement_lowers_the_error(vectors: np.ndarray) -> None:
    def error(refinements: int) -> float:
        book = fit_codebook(vectors, CONFIG.replace(refinements=refinements), seed=0)
        return float(((vectors - book.vectors[book.encode(vectors, 8)]) ** 2).mean())

    assert error(6) < error(0)


def test_fit_uses_no_more_vectors_than_it_may(vectors: np.ndarray) -> None:
    few = CONFIG.replace(fit_vectors=256)

    drawn = np.sort(np.random.default_rng(5).permutation(len(vectors))[:256])

    whole, sample = fit_codebook(vectors, few, 5), fit_codebook(vectors[drawn], CONFIG, 5)
    np.testing.assert_array_equal(whole.first, sample.first)
    assert not np.array_equal(whole.first, fit_codebook(vectors, CONFIG, 5).first)


def test_encoding_nothing_gives_nothing() -> None:
    book = ResidualCodebook(np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32))

    assert book.encode(np.zeros((0, 3), np.float32), 1).shape == (0,)


def test_neighbours_are_those_of_the_offsets() -> None:
    table = np.arange(6, dtype=np.float32)[:, None]
    offsets = np.array([(-1,), (1,)])
    decoder = NeighbourDecoder(table, table, offsets, np.zeros((3, 1), np.float32))

    found = decoder.neighbours(np.array([2, 5, 0]))

    # at the borders the edge stands for what lies beyond
    np.testing.assert_array_equal(found, [[2, 5, 1], [2, 0, 1], [5, 0, 1]])


def test_decoder_learns_what_neighbours_tell() -> None:
    rng = np.random.default_rng(1)
    table = rng.normal(0, 1, (16, 2)).astype(np.float32)
    codes = [rng.integers(0, 16, (12, 12)).astype(np.int32) for _ in range(4)]
    left = [np.pad(c, ((0, 0), (1, 0)), "edge")[:, :-1] for c in codes]
    grids = [table[c] + 0.5 * table[n] for c, n in zip(codes, left, strict=True)]
    offsets = np.array([(0, -1), (0, 0)])

    decoder = fit_decoder(table, offsets, grids, codes, CONFIG.replace(components=2))

    # the ridge of 1e-5 shrinks the exact weights by about as much
    np.testing.assert_allclose(decoder.decode(codes[0]), grids[0], atol=1e-3)
