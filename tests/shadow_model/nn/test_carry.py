"""The carry: chunk by chunk gives what the whole gives, whatever the cuts; old carries stay."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from shadow_model.errors import ConfigError
from shadow_model.nn.carry import Carry, Vectors, document_starts, empty_carry
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.model import Shadow
from shadow_model.nn.quant import key_value, key_value_levels
from shadow_model.table.synthetic import synthetic_table

TABLE = synthetic_table(64, 61)
LOOPED = ModelConfig(
    width=32, heads=4, prelude=1, core=2, coda=1, index_block=16, index_top=2, kv_heads=2
)
FLAT = LOOPED.replace(flat=3, kv_heads=1)
# no row twice: equal rows give equal scores, and then rounding chooses the block
IDS = torch.randperm(TABLE.num_rows, generator=torch.Generator().manual_seed(1))[:240].view(2, 120)
CUTS = ((0, 120), (0, 60, 120), (0, 7, 16, 56, 96, 97, 98, 120), tuple(range(0, 121, 3)))
EXACT = 1e-11
"""float64: sums of other shapes round otherwise, nothing else differs."""


def chunked(
    model: Shadow, ids: Tensor, cuts: tuple[int, ...], loops: int = 2, sparse: bool = False
) -> tuple[Tensor, Carry]:
    """Return the features of a context read chunk by chunk, and the carry at its end."""
    carry, parts = empty_carry(len(ids), loops), []
    for first, last in pairwise(cuts):
        out = model(ids[:, first:last], loops, sparse, carry=carry)
        assert out.carry is not None
        carry = out.carry
        parts.append(out.hidden)
    return torch.cat(parts, 1), carry


@pytest.mark.parametrize("cuts", CUTS, ids=len)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("quantise", [False, True], ids=["float", "quantised"])
@pytest.mark.parametrize("config", [LOOPED, FLAT], ids=["looped", "flat"])
def test_chunks_give_what_the_whole_gives(
    config: ModelConfig, quantise: bool, sparse: bool, cuts: tuple[int, ...]
) -> None:
    model = Shadow(config.replace(quantise=quantise), TABLE).double().eval()
    with torch.no_grad():
        whole = model(IDS, 2, sparse).hidden
        parts, carry = chunked(model, IDS, cuts, sparse=sparse)
    difference = (parts - whole).abs().amax(-1)
    if quantise:
        # a 4-bit value at a half step goes either way, and later tokens read it
        assert (difference < EXACT).float().mean() > 0.9
        assert difference.max() < 0.1
    else:
        assert difference.max() < EXACT
    assert carry.position == 120


def test_whole_in_one_chunk_is_the_forward_bit_for_bit() -> None:
    model = Shadow(LOOPED, TABLE).eval()
    with torch.no_grad():
        assert torch.equal(chunked(model, IDS, (0, 120))[0], model(IDS).hidden)


@pytest.mark.parametrize("cuts", CUTS[1:], ids=len)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("confined", [False, True], ids=["across", "within"])
def test_documents_and_memories_go_on_in_the_next_chunk(
    confined: bool, sparse: bool, cuts: tuple[int, ...]
) -> None:
    more = {"document_attention": confined, "engram_entries": 1024, "engram_width": 16}
    model = Shadow(LOOPED.replace(quantise=False, **more), TABLE).double().eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for engram in model.engrams:
            for parameter in engram.parameters():  # at first a memory adds nothing
                parameter.normal_(generator=generator)
    model.refresh()
    ids = IDS.clone()
    ids[0, [5, 20, 56, 97]] = ids[1, [70, 71]] = TABLE.layout.marks["sep"]
    with torch.no_grad():
        whole = model(ids, 2, sparse).hidden
        parts, carry = chunked(model, ids, cuts, sparse=sparse)
        assert (parts - whole).abs().max() < EXACT
        other = ids.clone()
        other[:, :70] = other[:, :70].flip(1)
        later = chunked(model, other, cuts, sparse=sparse)[0][:, 98:]
    assert carry.document.tolist() == [98, 72]
    assert bool((later - whole[:, 98:]).abs().max() < EXACT) == confined


def test_in_float32_roundings_cascade_no_further_than_they_do_elsewhere() -> None:
    # another order of sums moves a level of an int8 or 4-bit value here and there
    model = Shadow(LOOPED, TABLE).eval()
    with torch.no_grad():
        whole, parts = model(IDS).hidden, chunked(model, IDS, CUTS[2])[0]
    difference = (parts - whole).abs()
    assert difference.max() < 0.1
    assert difference.median() < 1e-5


def test_every_kept_part_is_read() -> None:
    model = Shadow(LOOPED, TABLE).double().eval()
    with torch.no_grad():
        _, carry = chunked(model, IDS[:, :100], (0, 100))
    rest = model(IDS[:, 100:], 2, True, carry=carry).hidden
    for number, block in enumerate(carry.blocks):
        for name in ("key", "value"):
            vectors = getattr(block, name)
            changed = block._replace(**{name: vectors._replace(scale=vectors.scale * 0)})
            blocks = (*carry.blocks[:number], changed, *carry.blocks[number + 1 :])
            other = model(IDS[:, 100:], 2, True, carry=carry._replace(blocks=blocks)).hidden
            assert (other - rest).abs().max() > 1e-4, (number, name)


def test_a_carry_can_be_continued_twice() -> None:
    model = Shadow(LOOPED, TABLE).double().eval()
    _, carry = chunked(model, IDS[:, :50], (0, 50))
    before = [t.clone() for t in carry.tensors()]
    first = model(IDS[:, 50:70], carry=carry).hidden
    model(IDS[:, 70:90], carry=carry)
    assert all(map(torch.equal, carry.tensors(), before))
    assert torch.equal(model(IDS[:, 50:70], carry=carry).hidden, first)


def test_without_quantisers_gradients_flow_through_the_carry() -> None:
    model = Shadow(LOOPED.replace(quantise=False), TABLE).double().eval()
    grads = []
    for cuts in ((0, 120), (0, 7, 60, 120)):
        hidden, _ = chunked(model, IDS, cuts)
        (grad,) = torch.autograd.grad(hidden.square().sum(), [model.inp.weight])
        grads.append(grad)
    assert (grads[0] - grads[1]).abs().max() < EXACT * grads[0].abs().max()


def test_quantised_pasts_pass_no_gradient_on() -> None:
    model = Shadow(LOOPED, TABLE)
    first = model(IDS[:, :40], carry=empty_carry(2, 2))
    assert first.carry is not None
    assert not any(t.requires_grad for t in first.carry.tensors())
    model(IDS[:, 40:80], carry=first.carry).hidden.sum().backward()
    assert float(model.core[0].k.weight.grad.abs().sum()) > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 5, 8])
def test_kept_vectors_are_the_forwards_bit_for_bit(
    bits: int, integer: bool, dtype: torch.dtype
) -> None:
    x = torch.randn(2, 9, 2, 16, generator=torch.Generator().manual_seed(1), dtype=dtype)
    kept = Vectors.of(key_value_levels(x, bits, integer))
    assert torch.equal(kept.values(x), key_value(x, bits, integer))
    assert kept.content.shape[-1] == (8 if bits <= 4 else 16)


def test_a_token_takes_the_stated_bytes() -> None:
    model = Shadow(LOOPED, TABLE).eval()
    _, carry = chunked(model, IDS, (0, 120))
    # keys and values: G heads of D / 2 bytes and a float32; the index key: float32
    per_block = 2 * 2 * (8 // 2 + 4) + 4 * LOOPED.index_width
    assert carry.num_bytes == 2 * 120 * 6 * per_block + carry.document.nbytes


def test_documents_begin_after_their_separators() -> None:
    sep = TABLE.layout.marks["sep"]
    ids = torch.tensor([[3, sep, 5, 6], [1, 2, 3, sep]])
    starts = document_starts(ids, sep, Carry(2, 10, torch.tensor([4, 0])))
    assert starts.tolist() == [[4, 4, 12, 12, 12], [0, 0, 0, 0, 14]]
    _, carry = chunked(Shadow(FLAT, TABLE).eval(), ids, (0, 1, 2, 4))
    assert carry.document.tolist() == [2, 4]


def test_a_carry_of_another_depth_or_batch_is_refused() -> None:
    model = Shadow(LOOPED, TABLE).eval()
    with pytest.raises(ConfigError, match="be of 3 loops and 2 rows"):
        model(IDS, 3, carry=empty_carry(2, 2))
    with pytest.raises(ConfigError, match="be of 2 loops and 1 rows"):
        model(IDS[:1], 2, carry=empty_carry(2, 2))
