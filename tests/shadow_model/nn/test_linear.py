"""Ternary products: equal to the formula, exact in whole numbers, refused when stale."""

import copy

import pytest
import torch
from torch import Tensor, nn

from shadow_model.errors import NumericsError
from shadow_model.nn.linear import SharedInput, TernaryLinear, TernaryWeight
from shadow_model.nn.quant import int8, ternary


def draw(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def weights(num_in: int, *outs: int) -> tuple[TernaryWeight, ...]:
    generator = torch.Generator().manual_seed(4)
    members = tuple(TernaryWeight(num_in, out) for out in outs)
    for member in members:
        member.initialise(generator)
    return members


def formula(x: Tensor, members: tuple[TernaryWeight, ...], detached: int = 0) -> list[Tensor]:
    last = len(members) - detached
    return [
        int8(x if i < last else x.detach()) @ ternary(m.weight).t() for i, m in enumerate(members)
    ]


@pytest.mark.parametrize("integer", [False, True])
def test_shared_product_equals_the_formula(integer: bool) -> None:
    members = weights(24, 9, 5, 4)
    shared = SharedInput(members, integer=integer, detached=1, pad=4)
    shared.refresh()
    results = []
    for compute in (
        lambda x: list(shared(x).split(shared.sizes, -1)),
        lambda x: formula(x, members, detached=1),
    ):
        x = draw(2, 7, 24).requires_grad_()
        parts = [p[..., : len(m.weight)] for p, m in zip(compute(x), members, strict=True)]
        sum((p * draw(*p.shape, seed=5)).sum() for p in parts).backward()
        results.append([*parts, x.grad, *(m.weight.grad.clone() for m in members)])
        for member in members:
            member.weight.grad = None
    # 2e-6: the same float32 sums of 24 terms in another order
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-6)


def test_padding_is_zero() -> None:
    shared = SharedInput(weights(8, 5, 3), pad=8)
    shared.refresh()
    out = shared(draw(6, 8))
    assert shared.sizes == (8, 8)
    assert torch.equal(out[:, 5:8], torch.zeros(6, 3))
    assert torch.equal(out[:, 11:], torch.zeros(6, 5))


def test_detached_members_pass_no_gradient_and_can_be_left_out() -> None:
    members = weights(8, 6, 4)
    shared = SharedInput(members, detached=1)
    shared.refresh()
    x = draw(3, 8).requires_grad_()
    shared(x)[..., 6:].sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))
    assert float(members[1].weight.grad.abs().sum()) > 0
    assert torch.equal(shared(x, attached_only=True), shared(x)[..., :6])


def test_integer_product_is_exact() -> None:
    linear = TernaryLinear(1365, 16)
    linear.initialise(torch.Generator().manual_seed(6))
    linear.refresh()
    x = draw(32, 1365)
    scale = x.abs().amax(-1, keepdim=True) / 127
    levels, signs = (x / scale).round().long(), linear.product.matrix.long()
    exact = (levels @ signs.t()).float() * (scale * linear.product.row_scale[0])
    assert torch.equal(linear(x), exact)


def test_padded_input_equals_unpadded() -> None:
    plain, padded = TernaryLinear(13, 6), TernaryLinear(13, 6, pad_in=8)
    plain.initialise(torch.Generator().manual_seed(7))
    padded.load_state_dict(plain.state_dict())
    x = draw(4, 13)
    grads = []
    for linear, given in ((plain, x), (padded, nn.functional.pad(x, (0, 3)))):
        linear.refresh()
        linear(given).square().sum().backward()
        grads.append(linear.weight.grad)
    assert torch.equal(plain(x), padded(nn.functional.pad(x, (0, 3))))
    # 1e-6: float32 sums of 4 terms
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-6, atol=1e-6)


def test_state_holds_float_weights_alone() -> None:
    linear = TernaryLinear(8, 4)
    assert list(linear.state_dict()) == ["weight"]
    assert [name for name, _ in linear.named_parameters()] == ["weight"]


@pytest.mark.parametrize("form", [{"foreach": False}, {"foreach": True}])
def test_stale_ternary_form_is_refused(form: dict[str, bool]) -> None:
    linear = TernaryLinear(8, 4)
    linear.initialise(torch.Generator().manual_seed(8))
    with pytest.raises(NumericsError, match="refresh"):
        linear(draw(2, 8))
    linear.refresh()
    optimizer = torch.optim.AdamW(linear.parameters(), lr=0.1, **form)
    linear(draw(2, 8)).sum().backward()
    optimizer.step()
    with pytest.raises(NumericsError, match="refresh"):
        linear(draw(2, 8))
    linear.refresh()
    assert torch.equal(
        linear.product.matrix * linear.product.row_scale[0], ternary(linear.weight.detach())
    )


def test_recomputation_sees_the_same_form() -> None:
    linear = TernaryLinear(8, 8)
    linear.initialise(torch.Generator().manual_seed(9))
    linear.refresh()
    grads = []
    for recompute in (False, True):
        x = draw(3, 8).requires_grad_()
        y = (
            torch.utils.checkpoint.checkpoint(linear, x, use_reentrant=False)
            if recompute
            else (linear(x))
        )
        y.square().sum().backward()
        grads.append(x.grad)
    assert torch.equal(*grads)


def test_autocast_keeps_whole_numbers_exact() -> None:
    linear = TernaryLinear(256, 8)
    linear.initialise(torch.Generator().manual_seed(10))
    linear.refresh()
    x = draw(16, 256)
    with torch.autocast("cpu", torch.bfloat16):
        found = linear(x)
    assert found.dtype == torch.bfloat16
    # 2^-7: the exact sum is rounded to bf16 once, and once more after its scale
    torch.testing.assert_close(found.float(), linear(x), rtol=2**-7, atol=0)


def test_copy_is_stale_until_refreshed() -> None:
    linear = TernaryLinear(8, 4)
    linear.initialise(torch.Generator().manual_seed(11))
    linear.refresh()
    twin = copy.deepcopy(linear)
    twin.refresh()
    assert torch.equal(twin(draw(2, 8)), linear(draw(2, 8)))
    assert twin.product._members[0] is twin
