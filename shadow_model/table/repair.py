"""No two rows nearer than a minimum Hamming distance: an exact check, and the repair.

Two rows that differ in fewer than `distance` bits agree on at least one of `distance` disjoint
groups of bits. So rows are sorted by each group's bits, and only rows that agree on a group are
compared in full: exact, with few comparisons.

Shapes: R rows, P pairs, W words of 64 bits.

Source: Norouzi, Punjani and Fleet, "Fast Search in Hamming Space with Multi-Index Hashing"
(CVPR 2012), section 3.
"""

from typing import NamedTuple

import numpy as np

from shadow_model.errors import LayoutError
from shadow_model.progress import Progress, silent
from shadow_model.table.store import BITS

_GROUPING_SEED = 7
_POOL_BITS = 160
_EXTRA_FLIPS = 6
_MAX_ROUNDS = 60
_BLOCK = 1 << 20
_LAST_GROUPED_DISTANCE = 32
_TILE_ROWS, _TILE_COLUMNS = 8, 8192
_FEW_FRAC = 1000


class Repaired(NamedTuple):
    """A repaired table.

    Attributes:
        bits: (R, 512) uint8.
        num_changed: Rows of which some bit was flipped.
        num_pairs: Pairs nearer than the minimum distance before.
        num_fixed_pairs: Pairs of fixed rows that are nearer still, and stay so.
        rounds: Passes over the table.
    """

    bits: np.ndarray
    num_changed: int
    num_pairs: int
    num_fixed_pairs: int
    rounds: int


def pack_rows(bits: np.ndarray) -> np.ndarray:
    """Return (R, 512) bits as (R, 8) uint64."""
    return np.ascontiguousarray(np.packbits(bits, axis=1)).view(np.uint64)


def hamming(packed: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return (P,) int32: the bits in which rows `first` and `second` of `packed` differ."""
    differ = packed[first] ^ packed[second]
    return np.asarray(np.bitwise_count(differ).sum(axis=1, dtype=np.int32))


def close_pairs(
    packed: np.ndarray, distance: int, touched: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Find every pair of rows that differ in fewer than `distance` bits (exact).

    Args:
        packed: (R, 8) uint64.
        distance: From 1 to 512.
        touched: (R,) bool; only pairs with such a row are wanted. None: all.

    Returns:
        Pairs (P, 2) int64 with first < second, sorted, and their distances (P,) int32.
    """
    bits = np.unpackbits(packed.view(np.uint8), axis=1)
    groups = np.array_split(np.random.default_rng(_GROUPING_SEED).permutation(BITS), distance)
    found = [_pairs_of_group(packed, bits[:, g], distance, touched) for g in groups]
    codes = np.unique(np.concatenate(found))
    pairs = np.stack(np.divmod(codes, len(packed)), axis=1)
    return pairs, hamming(packed, pairs[:, 0], pairs[:, 1])


def minimum_distance(packed: np.ndarray, known: int = 1) -> int:
    """Return the least Hamming distance of two rows (exact); 512 for a single row.

    Args:
        packed: (R, 8) uint64.
        known: A distance that no pair is below: where the search starts.
    """
    for distance in range(max(known, 1) + 1, _LAST_GROUPED_DISTANCE + 1, 4):
        _, distances = close_pairs(packed, distance)
        if len(distances):
            return int(distances.min())
    words = np.ascontiguousarray(packed.T)
    least = BITS
    for top in range(0, len(packed), _TILE_ROWS):  # rows so far apart that no group agrees
        for left in range(top, len(packed), _TILE_COLUMNS):
            least = min(least, _least_of_tile(packed, words, top, left, least))
    return least


def repair(
    bits: np.ndarray,
    margins: np.ndarray,
    counts: np.ndarray,
    *,
    min_distance: int,
    fixed: np.ndarray | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Repaired:
    """Flip low-margin bits of the rarer row of every close pair until none is left.

    Args:
        bits: (R, 512) uint8; not changed in place.
        margins: (R, 512) float32: what a flip costs; infinite where it is forbidden.
        counts: (R,) how often a row occurs; of a pair the rarer one moves, else the later one.
        min_distance: Bits in which any two rows must differ.
        fixed: (R,) bool: rows that must stay; two of them may stay close if they are not equal.
        seed: Decides which of the cheap bits are flipped.

    Raises:
        LayoutError: Two fixed rows are equal, or the rows cannot be told apart.
    """
    state = _State(bits.copy(), margins, counts, fixed, min_distance, seed)
    touched: np.ndarray | None = None
    num_pairs = 0
    for turn in range(_MAX_ROUNDS):
        pairs, distances = close_pairs(pack_rows(state.bits), min_distance, touched)
        movable = ~state.fixed[pairs].all(axis=1)
        _refuse_equal(pairs[~movable], distances[~movable])
        if turn == 0:
            num_pairs, num_fixed_pairs = len(pairs), int((~movable).sum())
        progress(turn, turn + 1 if movable.any() else turn, f"{movable.sum()} close pairs of rows")
        if not movable.any():
            changed = int((state.bits != bits).any(axis=1).sum())
            return Repaired(state.bits, changed, num_pairs, num_fixed_pairs, turn)
        moved = _move_rows(state, pairs[movable], distances[movable], turn)
        touched = np.zeros(len(bits), bool)
        touched[moved] = True
    fix = "Give vectors that differ more, or ask for a lower min_distance."
    raise LayoutError("table", f"have rows {min_distance} bits apart", f"{len(pairs)} close", fix)


def _least_of_tile(packed: np.ndarray, words: np.ndarray, top: int, left: int, least: int) -> int:
    """Return the least distance below `least` of rows from `top` to rows from `left`, or it."""
    rows, columns = words[:, top : top + _TILE_ROWS], words[:, left : left + _TILE_COLUMNS]
    distances = np.zeros((rows.shape[1], columns.shape[1]), np.uint16)
    for row, column in zip(rows, columns, strict=True):  # stop once few pairs can still be close
        distances += np.bitwise_count(row[:, None] ^ column)
        close = np.flatnonzero(distances < least)
        if len(close) * _FEW_FRAC < distances.size:
            break
    one, other = np.divmod(close, columns.shape[1])
    apart = one + top != other + left
    found = hamming(packed, one[apart] + top, other[apart] + left)
    return min(least, int(found.min(initial=least)))


class _State(NamedTuple):
    bits: np.ndarray
    margins: np.ndarray
    counts: np.ndarray
    fixed_rows: np.ndarray | None
    min_distance: int
    seed: int

    @property
    def fixed(self) -> np.ndarray:
        return np.zeros(len(self.bits), bool) if self.fixed_rows is None else self.fixed_rows


def _pairs_of_group(
    packed: np.ndarray, bits: np.ndarray, distance: int, touched: np.ndarray | None
) -> np.ndarray:
    """Return close pairs that agree on all of `bits`, each as first * R + second."""
    keys = np.ascontiguousarray(np.packbits(bits, axis=1))
    order = np.lexsort(keys.T)
    same = (keys[order[1:]] == keys[order[:-1]]).all(axis=1)
    run = np.cumsum(np.r_[0, ~same])  # number of the run of equal keys at each place
    places, step, found = np.flatnonzero(same), 1, [np.empty(0, np.int64)]
    while len(places):
        for first in range(0, len(places), _BLOCK):
            block = places[first : first + _BLOCK]
            found.append(_verified(packed, order[block], order[block + step], distance, touched))
        step += 1
        places = places[places + step < len(order)]
        places = places[run[places + step] == run[places]]
    return np.concatenate(found)


def _verified(
    packed: np.ndarray,
    one: np.ndarray,
    other: np.ndarray,
    distance: int,
    touched: np.ndarray | None,
) -> np.ndarray:
    if touched is not None:
        wanted = touched[one] | touched[other]
        one, other = one[wanted], other[wanted]
    close = hamming(packed, one, other) < distance
    one, other = one[close], other[close]
    return np.asarray(np.minimum(one, other) * np.int64(len(packed)) + np.maximum(one, other))


def _move_rows(state: _State, pairs: np.ndarray, distances: np.ndarray, turn: int) -> np.ndarray:
    """Move one row of every pair away from its nearest partner; return the rows moved."""
    movers = _movers(state, pairs)
    both = np.concatenate([pairs, pairs[:, ::-1]])
    twice = np.concatenate([distances, distances])
    order = np.lexsort((both[:, 1], twice, both[:, 0]))
    rows, where = np.unique(both[order, 0], return_index=True)
    nearest = order[where]  # of each row, its pair with the smallest distance
    wanted = np.isin(rows, movers)
    for row, pair in zip(rows[wanted].tolist(), nearest[wanted].tolist(), strict=True):
        flips = state.min_distance - int(twice[pair]) + (_EXTRA_FLIPS if turn else 0)
        _flip(state, row, int(both[pair, 1]), flips, turn)
    return movers


def _movers(state: _State, pairs: np.ndarray) -> np.ndarray:
    """Return the row of each pair that moves: not a fixed one, then the rarer, then the later."""
    first, second = pairs.T
    keep_second = state.counts[first] < state.counts[second]
    keep_second = np.where(state.fixed[first], False, keep_second | state.fixed[second])
    return np.unique(np.where(keep_second, first, second))


def _flip(state: _State, row: int, partner: int, flips: int, turn: int) -> None:
    """Flip bits in which a row agrees with its partner: each adds one to their distance."""
    bits, margins = state.bits, state.margins[row]
    order = np.argsort(margins, kind="stable")
    order = order[(bits[row, order] == bits[partner, order]) & np.isfinite(margins[order])]
    rng = np.random.default_rng((state.seed, row, turn))
    # chosen among the cheap ones: rows that flee from one partner must not flee to one place
    bits[row, rng.choice(order[:_POOL_BITS], min(flips, len(order)), replace=False)] ^= 1


def _refuse_equal(pairs: np.ndarray, distances: np.ndarray) -> None:
    equal = pairs[distances == 0]
    if len(equal):
        fix = "Remove one of them from the packed table."
        raise LayoutError("packed rows", "differ", f"rows {tuple(equal[0])} are equal", fix)
