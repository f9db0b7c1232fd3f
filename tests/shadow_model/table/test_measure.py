from pathlib import Path

import numpy as np
import pytest

from shadow_model.errors import DataError
from shadow_model.table.measure import (
    RatedPair,
    bit_balance,
    cosine_agreement,
    distance_agreement,
    mean_distance,
    rating_agreement,
    read_ratings,
)
from shadow_model.table.repair import pack_rows


@pytest.fixture(scope="module")
def bits() -> np.ndarray:
    return (np.random.default_rng(0).random((60, 512)) < 0.4).astype(np.uint8)


def test_mean_distance_is_that_of_all_pairs(bits: np.ndarray) -> None:
    pairs = [(bits[i] != bits[j]).sum() for i in range(60) for j in range(i)]
    assert mean_distance(bits) == pytest.approx(np.mean(pairs), rel=1e-12)
    assert mean_distance(bits[:1]) == 0


def test_bit_balance(bits: np.ndarray) -> None:
    shares = bits.mean(axis=0)
    balance = bit_balance(bits)
    expected = {"mean": shares.mean(), "min": shares.min(), "max": shares.max()}
    assert balance == pytest.approx(expected, abs=5e-5)  # stated to four digits


def test_agreements_are_one_where_codes_spell_the_vectors() -> None:
    """Thermometer codes of one number: Hamming distance is the distance."""
    steps = np.arange(200)
    packed = pack_rows((np.arange(512) < steps[:, None]).astype(np.uint8))
    line = steps[:, None].astype(np.float32)
    assert distance_agreement(packed, line, 2000, seed=0) == pytest.approx(1, abs=1e-9)
    angle = steps / 200
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    # 1e-3: cosines of near angles are equal in float32
    assert cosine_agreement(packed, circle, 2000, seed=0) == pytest.approx(1, abs=1e-3)


def test_agreement_of_equal_rows_is_not_a_number() -> None:
    packed = pack_rows(np.zeros((5, 512), np.uint8))
    assert cosine_agreement(packed, np.ones((5, 2), np.float32), 100, seed=0) is None


def test_rating_agreement_takes_single_piece_pairs_only() -> None:
    steps = np.array([0, 10, 30, 100])
    packed = pack_rows((np.arange(512) < steps[:, None]).astype(np.uint8))
    rows = {"a": 0, "b": 1, "c": 2, "d": 3}
    pairs = [
        RatedPair("a", "b", 9),
        RatedPair("a", "c", 5),
        RatedPair("a", "d", 1),
        RatedPair("a", "zebra", 10),
    ]
    vectors = {i: np.array([1, x], np.float32) for i, x in enumerate((0.0, 0.1, 0.3, 2.0))}
    figures = rating_agreement(pairs, rows.get, packed, vectors)
    assert figures == {"spearman": 1.0, "float_spearman": 1.0, "pairs": 3, "of": 4}
    none = rating_agreement(pairs, {}.get, packed, vectors)
    assert none == {"spearman": None, "float_spearman": None, "pairs": 0, "of": 4}


def test_ratings_with_and_without_a_heading(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text('first,second,mean\nlove, sex ,6.77\n\n"a,b",c,1\n')
    assert read_ratings(path) == [RatedPair("love", "sex", 6.77), RatedPair("a,b", "c", 1)]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", "at least one pair"),
        (b"one,two,three\n", "at least one pair"),
        (b"a,b,1\nc,d\n", "line 2"),
        (b"a,b,1\nc,d,x\n", "line 2"),
        (b"a,b,1\nc,,2\n", "line 2"),
        (b"a,b,nan\n", "at least one pair"),
        (b"a,b,1\n\xff\xfe,c,2\n", "UTF-8"),
    ],
)
def test_bad_ratings_are_refused(content: bytes, place: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    with pytest.raises(DataError, match=r"pairs\.csv"):
        read_ratings(path)
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"pairs\.csv.*{place}"):
        read_ratings(path)
