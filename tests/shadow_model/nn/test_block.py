"""One block: what depends on what."""

import pytest
import torch
from torch import Tensor

from shadow_model.nn.block import Block, initialise_weights
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.functional import rms, rotary_angles
from shadow_model.nn.linear import SharedInput

CONFIG = ModelConfig(width=32, heads=4, index_block=8, index_top=2, index_width=8)
TOKENS = 44


def build(config: ModelConfig = CONFIG) -> Block:
    block = Block(config)
    initialise_weights(block, 51)
    for module in block.modules():
        if isinstance(module, SharedInput):
            module.refresh()
    return block


def draw() -> Tensor:
    return torch.randn(2, TOKENS, 32, generator=torch.Generator().manual_seed(52))


ROTARY = rotary_angles(TOKENS, 8, 1e5)
POSITIONS = torch.tensor([8, 20, 43])


@pytest.mark.parametrize("quantise", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_is_causal(sparse: bool, quantise: bool) -> None:
    block = build(CONFIG.replace(quantise=quantise)).double()
    for module in block.modules():
        if isinstance(module, SharedInput):
            module.refresh()
    x = draw().double()
    changed = x.clone()
    changed[:, 30] += 1
    with torch.no_grad():
        before, after = (block(t, ROTARY, sparse, None)[0] for t in (x, changed))
    # 1e-12: a changed later token may move the order of sums in a tile, not more
    torch.testing.assert_close(before[:, :30], after[:, :30], rtol=0, atol=1e-12)
    assert float((before[:, 30:] - after[:, 30:]).abs().max()) > 1e-3


def test_output_is_normalised() -> None:
    out, _ = build()(draw(), ROTARY, False, None)
    # 1e-3: rms of a vector of unit mean square, which the 1e-6 inside moves a little
    torch.testing.assert_close(rms(out), out, rtol=0, atol=1e-3)


def test_index_loss_teaches_the_index_weights_alone() -> None:
    block = build()
    x = draw().requires_grad_()
    _, loss = block(x, ROTARY, False, POSITIONS)
    loss.backward()
    learnt = {n for n, p in block.named_parameters() if p.grad is not None and p.grad.any()}
    assert learnt == {"iq.weight", "ik.weight"}
    assert x.grad is None or not x.grad.any()


def test_index_weights_learn_from_nothing_else() -> None:
    block = build()
    out, loss = block(draw(), ROTARY, True, None)
    out.sum().backward()
    assert loss is None
    assert block.iq.weight.grad is None or not block.iq.weight.grad.any()


def test_sparse_is_dense_where_every_block_is_chosen() -> None:
    block = build(CONFIG.replace(index_top=5))  # 6 blocks of 8 tokens: own and 5
    with torch.no_grad():
        dense, sparse = (block(draw(), ROTARY, s, None)[0] for s in (False, True))
        selecting = build()(draw(), ROTARY, True, None)[0]
    assert torch.equal(dense, sparse)
    assert not torch.allclose(dense, selecting, atol=1e-3)


def test_positions_do_not_change_the_output() -> None:
    block = build()
    with torch.no_grad():
        assert torch.equal(
            block(draw(), ROTARY, False, None)[0], block(draw(), ROTARY, False, POSITIONS)[0]
        )


def test_index_teacher_counts_where_attention_selects() -> None:
    found = {}
    for teacher in ("selected", "dense"):
        block = build(CONFIG.replace(index_teacher=teacher))
        for sparse in (False, True):
            found[teacher, sparse] = float(block(draw(), ROTARY, sparse, POSITIONS)[1].detach())
    assert found["selected", False] == found["dense", False] == found["dense", True]
    assert abs(found["selected", True] - found["dense", True]) > 1e-4
