"""The optimiser against torch's plain form, clipping, and its saved state."""

import copy

import pytest
import torch
from torch import nn

from shadow_model.errors import CheckpointError
from shadow_model.train.config import TrainConfig
from shadow_model.train.optim import (
    build_optimizer,
    clip_gradients,
    optimizer_tensors,
    restore_optimizer,
    set_lr,
)

CONFIG = TrainConfig(tokens=1 << 20, lr=1e-2, weight_decay=0.5)


class _Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.alpha = nn.Parameter(torch.full((3,), 0.1))
        self.first = nn.Parameter(torch.randn(5, 4, generator=generator))
        self.unreached = nn.Parameter(torch.ones(2, 2))


def _backward(body: _Body, seed: int) -> None:
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))
    ((x @ body.first.t()).square().sum() + body.alpha.sum().square()).backward()


def test_matches_plain_adamw_and_alpha_does_not_decay() -> None:
    ours, plain = _Body(), _Body()
    optimizer = build_optimizer(ours, CONFIG)
    reference = torch.optim.AdamW(
        [
            {"params": [plain.first], "weight_decay": 0.5},
            {"params": [plain.alpha], "weight_decay": 0.0},
        ],
        lr=1e-2,
        betas=(0.9, 0.95),
        fused=False,
    )
    for step in range(5):
        for body, stepper in ((ours, optimizer), (plain, reference)):
            stepper.zero_grad()
            _backward(body, step)
            stepper.step()
    # relative 1e-5: the fused form orders its float32 products otherwise
    torch.testing.assert_close(ours.first, plain.first, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(ours.alpha, plain.alpha, rtol=1e-5, atol=1e-7)
    assert torch.equal(ours.unreached, torch.ones(2, 2))


def test_learning_rate_reaches_every_group() -> None:
    optimizer = build_optimizer(_Body(), CONFIG)
    set_lr(optimizer, 0.125)
    assert [group["lr"] for group in optimizer.param_groups] == [0.125, 0.125]


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clipping_equals_torchs_own(max_norm: float) -> None:
    ours, plain = _Body(), _Body()
    _backward(ours, 0)
    _backward(plain, 0)
    before = [0.0 if p.grad is None else p.grad.norm().item() for p in ours.parameters()]
    norms = clip_gradients(list(ours.parameters()), max_norm)
    nn.utils.clip_grad_norm_(list(plain.parameters()), max_norm)
    assert norms.tolist() == pytest.approx(before, rel=1e-6)
    assert ours.unreached.grad is None
    for mine, other in zip((ours.alpha, ours.first), (plain.alpha, plain.first), strict=True):
        # relative 1e-6: one float32 multiplication of the same factor
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-6, atol=0)


def test_restored_optimiser_continues_bit_for_bit() -> None:
    body = _Body()
    optimizer = build_optimizer(body, CONFIG)
    _backward(body, 0)
    optimizer.step()
    other = copy.deepcopy(body)
    resumed = build_optimizer(other, CONFIG)
    restore_optimizer(other, resumed, optimizer_tensors(body, optimizer), "checkpoint")
    for model, stepper in ((body, optimizer), (other, resumed)):
        stepper.zero_grad()
        _backward(model, 1)
        stepper.step()
    for mine, theirs in zip(body.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_moments_of_another_shape_are_refused() -> None:
    body = _Body()
    optimizer = build_optimizer(body, CONFIG)
    _backward(body, 0)
    optimizer.step()
    tensors = optimizer_tensors(body, optimizer)
    assert "unreached.exp_avg" not in tensors
    del tensors["first.exp_avg"]
    with pytest.raises(CheckpointError, match="moments of first"):
        restore_optimizer(body, build_optimizer(body, CONFIG), tensors, "optimizer.safetensors")
