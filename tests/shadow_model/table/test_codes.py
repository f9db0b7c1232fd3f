import numpy as np
import pytest
from scipy import stats

from shadow_model.table.codes import (
    extend_codes,
    itq_rotation,
    language_codes,
    prepare_vectors,
    random_codes,
    semantic_width,
    surface_codes,
    threshold,
)


def _agreement(bits: np.ndarray, vectors: np.ndarray) -> float:
    one, other = np.random.default_rng(0).integers(0, len(bits), (2, 5000))
    same = (bits[one] == bits[other]).sum(axis=1)
    cosines = np.einsum("pd,pd->p", vectors[one], vectors[other])
    return float(stats.spearmanr(same, cosines).statistic)


def test_prepared_vectors_have_unit_length_in_each_set(clustered) -> None:
    sets = [clustered(50, 8) * 100, clustered(50, 5) + 3]
    prepared = prepare_vectors(sets)
    assert prepared.shape == (50, 13)
    assert prepared.dtype == np.float32
    for part in (prepared[:, :8], prepared[:, 8:]):
        # 1e-5: float32 sums of a few squares
        assert np.allclose(np.linalg.norm(part, axis=1), 1, atol=1e-5)


def test_scale_of_a_vector_does_not_matter(clustered) -> None:
    vectors = clustered(50, 8)
    scaled = vectors * np.random.default_rng(0).uniform(0.1, 10, (50, 1)).astype(np.float32)
    assert np.allclose(prepare_vectors([vectors]), prepare_vectors([scaled]), atol=1e-5)


def test_zero_vectors_stay_finite() -> None:
    assert np.isfinite(prepare_vectors([np.zeros((4, 3), np.float32)])).all()


@pytest.mark.parametrize("dimensions", [600, 512, 96])
def test_bits_are_balanced_and_follow_the_cosine(clustered, dimensions: int) -> None:
    vectors = prepare_vectors([clustered(400, dimensions)])
    codes = language_codes(vectors, 512, iterations=5, seed=0)
    assert codes.bits.shape == codes.margins.shape == (400, 512)
    assert (codes.bits.sum(axis=0) == 200).all()
    assert _agreement(codes.bits, vectors) > 0.5  # random bits: 0 +- 0.02


def test_rotation_is_orthogonal_and_loses_less_than_the_first(clustered) -> None:
    sample = prepare_vectors([clustered(300, 24)])
    started = itq_rotation(sample, 0, np.random.default_rng(0))
    turned = itq_rotation(sample, 20, np.random.default_rng(0))
    assert np.allclose(turned @ turned.T, np.eye(24), atol=1e-5)  # float32 products of 24 terms

    def loss(rotation: np.ndarray) -> float:
        return float(((np.sign(sample @ rotation) - sample @ rotation) ** 2).sum())

    assert loss(turned) < 0.99 * loss(started)


def test_codes_repeat_bit_for_bit(clustered) -> None:
    vectors = prepare_vectors([clustered(200, 40)])
    one, other = (language_codes(vectors, 100, 5, seed=2) for _ in range(2))
    assert np.array_equal(one.bits, other.bits)
    assert np.array_equal(one.margins, other.margins)
    assert (one.bits != language_codes(vectors, 100, 5, seed=3).bits).any()


def test_margin_is_the_distance_from_the_median() -> None:
    bits, margins = threshold(np.array([-3.0, 0.0, 1.0, 2.0, 3.0], np.float32))
    assert bits.tolist() == [0, 0, 0, 1, 1]
    deviation = np.std([-4, -1, 0, 1, 2])
    assert np.allclose(margins, np.array([4, 1, 0, 1, 2]) / deviation, atol=1e-6)


def test_surface_bits_spell_space_and_capitals() -> None:
    texts = [" the", "the", " The", " THE", "A", " 12"]
    bits = surface_codes(texts, 16).bits.reshape(len(texts), 3, 16)
    spread = (bits[:, None] != bits[None]).sum(axis=3)  # bits that differ, by block
    assert spread[0, 1].tolist() == [16, 0, 0]
    assert spread[0, 2].tolist() == [0, 16, 0]
    assert spread[0, 3].tolist() == [0, 0, 16]
    assert spread[4, 2].tolist() == [16, 0, 0]  # a single capital is Capital, not SHOUTED
    assert spread[0, 5].tolist() == [0, 0, 0]
    assert (bits.sum(axis=(1, 2)) == 24).all()


def test_surface_bits_must_not_be_flipped() -> None:
    assert np.isposinf(surface_codes([" a"], 4).margins).all()
    assert semantic_width(16) == 464
    assert semantic_width(0) == 512


def test_random_codes_are_fair_and_keyed() -> None:
    codes = random_codes(200, 512, (0, 1))
    assert abs(codes.bits.mean() - 0.5) < 0.01  # 6 standard errors
    assert not codes.margins.any()
    assert not np.array_equal(codes.bits, random_codes(200, 512, (0, 2)).bits)


def test_new_rows_follow_the_codes_of_known_ones(clustered) -> None:
    vectors = prepare_vectors([clustered(600, 32)])
    true = language_codes(vectors, 512, iterations=5, seed=0).bits
    guessed = extend_codes(true[:500], vectors[:500], vectors[500:]).bits
    assert guessed.shape == (100, 512)
    assert (guessed == true[500:]).mean() > 0.75  # chance: 0.5
