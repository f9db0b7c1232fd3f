import numpy as np
import pytest

from shadow_model.errors import LayoutError
from shadow_model.table.repair import close_pairs, hamming, minimum_distance, pack_rows, repair


def _random(num_rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (num_rows, 512), dtype=np.uint8)


def _planted(num_rows: int, num_planted: int, most: int) -> np.ndarray:
    """Return random rows, the last of them copies of the first with up to `most` bits flipped."""
    bits, rng = _random(num_rows), np.random.default_rng(1)
    for i in range(num_planted):
        bits[-1 - i] = bits[i]
        bits[-1 - i, rng.choice(512, rng.integers(0, most + 1), replace=False)] ^= 1
    return bits


def _all_distances(bits: np.ndarray) -> np.ndarray:
    signs = bits.astype(np.float32) * 2 - 1  # sums of 512 signs are exact in float32
    return ((512 - signs @ signs.T) / 2).astype(np.int32)


def _repair(bits: np.ndarray, **changes):
    margins = np.random.default_rng(2).random(bits.shape, dtype=np.float32)
    options = {"margins": margins, "counts": np.zeros(len(bits)), "min_distance": 24}
    return repair(bits, **{**options, **changes})


def test_hamming_counts_differing_bits() -> None:
    bits = _random(10)
    one, other = np.arange(9), np.arange(1, 10)
    expected = (bits[one] != bits[other]).sum(axis=1)
    assert np.array_equal(hamming(pack_rows(bits), one, other), expected)


@pytest.mark.parametrize("distance", [1, 2, 24, 33])
def test_close_pairs_are_those_of_brute_force(distance: int) -> None:
    bits = _planted(800, 200, most=60)
    bits[10:14] = bits[9]  # a run of equal rows
    distances = _all_distances(bits)
    expected = np.argwhere(np.triu(distances < distance, 1))
    pairs, found = close_pairs(pack_rows(bits), distance)
    assert len(expected) > 5
    assert np.array_equal(pairs, expected)
    assert np.array_equal(found, distances[tuple(expected.T)])


def test_touched_rows_limit_the_pairs() -> None:
    bits = _planted(300, 40, most=10)
    touched = np.zeros(300, bool)
    touched[[3, 299]] = True
    pairs, _ = close_pairs(pack_rows(bits), 24, touched)
    assert pairs.tolist() == [[0, 299], [3, 296]]


@pytest.mark.parametrize("bits", [_planted(400, 10, most=9), _planted(9000, 0, 0), _random(1)])
def test_minimum_distance_is_that_of_brute_force(bits: np.ndarray) -> None:
    """Close rows (by groups), random rows (over several tiles), a single row."""
    distances = _all_distances(bits)
    np.fill_diagonal(distances, 512)
    assert minimum_distance(pack_rows(bits)) == distances.min()


def test_minimum_beyond_the_groups() -> None:
    bits = _random(9000)
    bits[8500] = bits[17]
    bits[8500, :57] ^= 1
    assert minimum_distance(pack_rows(bits), known=24) == 57


def test_repair_reaches_the_minimum_distance() -> None:
    bits = _planted(900, 300, most=23)
    repaired = _repair(bits)
    distances = _all_distances(repaired.bits)
    np.fill_diagonal(distances, 512)
    assert distances.min() >= 24
    assert repaired.num_pairs == 300
    assert repaired.num_changed == (repaired.bits != bits).any(axis=1).sum() <= 300
    assert np.array_equal(bits, _planted(900, 300, most=23))  # the argument is untouched


def test_many_equal_rows_are_pulled_apart() -> None:
    bits = _random(300)
    bits[100:200] = bits[100]
    repaired = _repair(bits)
    assert minimum_distance(pack_rows(repaired.bits)) >= 24
    assert np.array_equal(repaired.bits[:100], bits[:100])


def test_the_rarer_row_moves_by_cheap_bits() -> None:
    bits = _planted(100, 1, most=0)
    margins = np.tile(np.linspace(1, 2, 512, dtype=np.float32), (100, 1))
    counts = np.zeros(100)
    counts[99] = 5  # of the equal rows 0 and 99, row 0 is rarer
    repaired = _repair(bits, margins=margins, counts=counts)
    flipped = np.flatnonzero(repaired.bits[0] != bits[0])
    assert np.array_equal(repaired.bits[1:], bits[1:])
    assert len(flipped) == 24
    assert flipped.max() < 160  # the pool of cheap bits


def test_of_equally_rare_rows_the_later_moves() -> None:
    bits = _planted(100, 1, most=0)
    assert np.flatnonzero((_repair(bits).bits != bits).any(axis=1)).tolist() == [99]


def test_bits_of_infinite_margin_stay() -> None:
    bits = _planted(200, 80, most=5)
    margins = np.zeros(bits.shape, np.float32)
    margins[:, 300:] = np.inf
    repaired = _repair(bits, margins=margins)
    assert np.array_equal(repaired.bits[:, 300:], bits[:, 300:])
    assert minimum_distance(pack_rows(repaired.bits)) >= 24


def test_fixed_rows_stay_and_their_own_close_pairs_are_counted() -> None:
    bits = _planted(200, 50, most=20)
    bits[7, :] = bits[6, :]
    bits[7, 0] ^= 1
    fixed = np.zeros(200, bool)
    fixed[[6, 7, *range(160, 200)]] = True
    repaired = _repair(bits, fixed=fixed)
    assert np.array_equal(repaired.bits[fixed], bits[fixed])
    pairs, _ = close_pairs(pack_rows(repaired.bits), 24)
    assert pairs.tolist() == [[6, 7]] or fixed[pairs].all()
    assert repaired.num_fixed_pairs == len(pairs)


def test_equal_fixed_rows_are_refused() -> None:
    bits = _planted(50, 1, most=0)
    with pytest.raises(LayoutError, match=r"rows .*0.*49.* are equal"):
        _repair(bits, fixed=np.ones(50, bool))


def test_rows_that_may_not_move_at_all_are_refused() -> None:
    bits = _planted(50, 1, most=0)
    with pytest.raises(LayoutError, match="24 bits apart"):
        _repair(bits, margins=np.full(bits.shape, np.inf, np.float32))


def test_repair_repeats_bit_for_bit() -> None:
    bits = _planted(300, 100, most=10)
    assert np.array_equal(_repair(bits, seed=1).bits, _repair(bits, seed=1).bits)
    assert not np.array_equal(_repair(bits, seed=1).bits, _repair(bits, seed=2).bits)
