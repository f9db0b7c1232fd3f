"""N-grams: their slots, their boundaries, the sizes of their tables."""

import numpy as np
import pytest
import torch
from torch import Tensor

from shadow_model.nn.ngrams import (
    HEADS_PER_ORDER,
    NUM_HEADS,
    boundary_rows,
    draw_multipliers,
    hash_slots,
    ngram_context,
    size_for,
)
from shadow_model.table.layout import Layout

LAYOUT = Layout(num_lang=50)
BOUNDARY = boundary_rows(LAYOUT)
MULTIPLIERS = torch.stack([draw_multipliers(3, module) for module in (0, 1)])
PRIMES = torch.stack([torch.tensor(size_for(4096, 64, module).primes) for module in (0, 1)])
WORDS = torch.randint(50, (2, 40), generator=torch.Generator().manual_seed(1))
BOUNDARIES = [
    LAYOUT.marks["sep"],
    LAYOUT.marks["image"],
    LAYOUT.control("[gen_audio]"),
    LAYOUT.control("[/video]"),
    LAYOUT.control("[end_gen]"),
]


def _slots(canon: Tensor, tail: Tensor | None = None) -> Tensor:
    return hash_slots(ngram_context(canon, BOUNDARY, tail), MULTIPLIERS, PRIMES)


def test_slots_are_the_wrapped_hash_by_plain_integers() -> None:
    slots, wrap = _slots(WORDS), 1 << 64
    for module, batch, at, head in [(0, 0, 5, 0), (1, 1, 39, 7), (0, 1, 17, 8), (1, 0, 2, 15)]:
        mix = 0
        for back in range(2 if head < HEADS_PER_ORDER else 3):
            product = int(WORDS[batch, at - back]) * int(MULTIPLIERS[module, back])
            mix ^= product % wrap
        signed = mix - wrap if mix >= wrap // 2 else mix
        assert int(slots[module, batch, at, head]) == signed % int(PRIMES[module, head])


def test_the_same_ngram_hits_the_same_slots_everywhere() -> None:
    ids = WORDS.clone()
    ids[0, 10:13] = ids[0, 30:33] = ids[1, 20:23] = torch.tensor([7, 8, 9])
    slots = _slots(ids)
    assert torch.equal(slots[:, 0, 12], slots[:, 0, 32])
    assert torch.equal(slots[:, 0, 12], slots[:, 1, 22])
    bigrams = slice(0, HEADS_PER_ORDER)
    ids[0, 30] = 11  # another trigram, the same bigram
    other = _slots(ids)
    assert torch.equal(slots[:, 0, 32, bigrams], other[:, 0, 32, bigrams])
    assert not torch.equal(slots[:, 0, 32], other[:, 0, 32])


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_ngrams_never_cross_a_boundary(boundary: int) -> None:
    ids = WORDS.clone()
    ids[:, 20] = boundary
    other = ids.clone()
    other[:, :20] = (other[:, :20] + 1) % 50
    first, second = _slots(ids), _slots(other)
    assert torch.equal(first[:, :, 20:], second[:, :, 20:])
    assert not torch.equal(first[:, :, 19], second[:, :, 19])
    # and what comes after the boundary starts as a context does
    assert torch.equal(first[:, :, 20:], _slots(ids[:, 20:]))


def test_a_word_is_no_boundary() -> None:
    other = WORDS.clone()
    other[:, 19] = (other[:, 19] + 1) % 50
    differ = (_slots(WORDS) != _slots(other)).any(-1).any(0).any(0)
    assert differ.nonzero().flatten().tolist() == [19, 20, 21]


def test_chunks_with_their_tail_are_the_whole() -> None:
    ids = WORDS.clone()
    ids[0, 15] = LAYOUT.marks["sep"]
    whole = _slots(ids)
    for cut in (1, 2, 15, 16, 17):
        parts = [_slots(ids[:, :cut]), _slots(ids[:, cut:], ids[:, max(0, cut - 2) : cut])]
        assert torch.equal(torch.cat(parts, 2), whole)


def test_sizes() -> None:
    sizes = [size_for(8_000_000, 512, module) for module in (0, 1)]
    primes = [p for size in sizes for p in size.primes]
    assert len(set(primes)) == 2 * NUM_HEADS
    assert all(abs(p / 500_000 - 1) < 1e-3 for p in primes)
    assert all(p % d for p in primes[:4] for d in range(2, 708))
    assert {size.head_width for size in sizes} == {32}
    assert sum(size.cells for size in sizes) == pytest.approx(512e6, rel=1e-3)


def test_multipliers_are_odd_and_a_memorys_own() -> None:
    assert (MULTIPLIERS % 2 != 0).all()
    assert len(set(MULTIPLIERS.flatten().tolist())) == MULTIPLIERS.numel()
    assert torch.equal(MULTIPLIERS[1], draw_multipliers(3 + 10_007, 0))


def test_slots_spread_evenly() -> None:
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, 50, (1, 40_000)))
    slots = _slots(ids)
    for head in (0, 8):  # 2,500 bigrams and 125,000 trigrams into some 260 rows
        counts = torch.bincount(slots[0, 0, :, head], minlength=int(PRIMES[0, head]))
        assert (counts > 0).all()
        assert counts.max() < 6 * counts.float().mean()
