"""Where an n-gram lies in a memory: hashes of its canonical ids into tables of prime size.

    mix_n = xor over k < n of canon[t-k] · m_k      int64, wrapping; n = 2 and 3
    slot  = mix_n mod p                             p a prime of its own for each head

The multipliers m_k are odd and a memory's own. A boundary id (document end, start and end of a
span) begins n-grams anew: neither it nor what follows sees what came before it.

Legend: B batch, T tokens, H = 16 heads (8 of each order), M memories.

Source: Engram (arXiv 2601.07372), section on sparse retrieval by hashed n-grams.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shadow_model.table.layout import Layout

ORDERS = (2, 3)
HEADS_PER_ORDER = 8
NUM_HEADS = len(ORDERS) * HEADS_PER_ORDER
TAIL_TOKENS = max(ORDERS) - 1
"""Ids before a chunk that its n-grams reach."""
_SEED_STEP = 10_007
_NOTHING = -1
"""Stands for an id beyond a boundary, or before the context."""
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


class MemorySize(NamedTuple):
    """Size of one memory.

    Attributes:
        primes: (H,) rows of each head's table, all distinct.
        head_width: Values of a row.
        cells: Values in all.
    """

    primes: tuple[int, ...]
    head_width: int
    cells: int


def size_for(entries: int, width: int, module: int = 0) -> MemorySize:
    """Return the size of a memory.

    Args:
        entries: Rows wanted over all heads; each head gets a prime next above its share.
        width: Values that a token reads from all heads together.
        module: Which memory, from 0: no two memories share a prime.
    """
    first = module * NUM_HEADS
    primes = tuple(itertools.islice(_primes_from(entries // NUM_HEADS), first, first + NUM_HEADS))
    head_width = width // NUM_HEADS
    return MemorySize(primes, head_width, sum(primes) * head_width)


def draw_multipliers(seed: int, module: int) -> Tensor:
    """Return (3,) int64 odd multipliers, by which an id of each place is multiplied."""
    bounds = np.iinfo(np.int64)
    rng = np.random.default_rng(seed + _SEED_STEP * module)
    drawn = rng.integers(bounds.min, bounds.max, max(ORDERS), np.int64, endpoint=True)
    return torch.from_numpy(drawn | 1)


def boundary_rows(layout: Layout) -> Tensor:
    """Return (R,) bool: the rows that begin n-grams anew; each is its own canonical id."""
    boundary = torch.zeros(layout.num_rows, dtype=torch.bool)
    boundary[[layout.marks["sep"], *layout.start_rows, *layout.end_rows]] = True
    return boundary


def ngram_context(canon_BT: Tensor, boundary: Tensor, tail: Tensor | None = None) -> Tensor:
    """Return what the n-grams that end at each position are made of.

    Args:
        canon_BT: (B, T) int64 canonical ids.
        boundary: (R,) bool, canonical ids that begin n-grams anew.
        tail: (B, few) int64, the canonical ids before the first position, where there are any.

    Returns:
        (B, T, 3) int64: the id k places back; -1 where that lies beyond a boundary.
    """
    tail = canon_BT[:, :0] if tail is None else tail
    canon = torch.cat([tail, canon_BT], 1)
    time = torch.arange(canon.shape[1], device=canon.device)
    begun = torch.where(boundary[canon], time, 0).cummax(1).values
    back = time[:, None] - torch.arange(max(ORDERS), device=canon.device)
    reached = canon[:, back.clamp_min(0)]
    return torch.where(back >= begun[..., None], reached, _NOTHING)[:, tail.shape[1] :]


def hash_slots(context_BTK: Tensor, multipliers_MK: Tensor, primes_MH: Tensor) -> Tensor:
    """Return the slot of every n-gram in every head's table of every memory.

    Args:
        context_BTK: (B, T, 3) int64 of `ngram_context`.
        multipliers_MK: (M, 3) int64, odd.
        primes_MH: (M, H) int64; the first half of the heads read bigrams, the others trigrams.

    Returns:
        (M, B, T, H) int64, each in [0, its prime).
    """
    product = context_BTK * multipliers_MK[:, None, None]
    mixes, mix = [], product[..., 0]
    for place in range(1, max(ORDERS)):
        mix = mix ^ product[..., place]
        mixes.append(mix[..., None].expand(*mix.shape, HEADS_PER_ORDER))
    return torch.cat(mixes, -1).remainder(primes_MH[:, None, None])


def _primes_from(number: int) -> Iterator[int]:
    return (n for n in itertools.count(max(2, number)) if _is_prime(n))


def _is_prime(number: int) -> bool:
    """Miller-Rabin with the witnesses that decide every number below 3e24."""
    for small in _WITNESSES:
        if number % small == 0:
            return number == small
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(number, odd, twos, witness) for witness in _WITNESSES)


def _passes(number: int, odd: int, twos: int, witness: int) -> bool:
    power = pow(witness, odd, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False
