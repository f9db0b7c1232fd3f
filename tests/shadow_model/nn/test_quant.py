"""Quantisers: equal to the golden arrays bit for bit, exact in their levels, straight-through."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from shadow_model.nn.quant import int8, int8_parts, key_value, ternary, ternary_parts

GOLDEN = load_file(Path(__file__).parents[2] / "golden" / "quantisers.safetensors")


@pytest.mark.parametrize("i", range(3))
def test_quantisers_equal_golden_exactly(i: int) -> None:
    x = GOLDEN[f"in{i}"]
    assert torch.equal(ternary(x), GOLDEN[f"ternary{i}"])
    assert torch.equal(int8(x), GOLDEN[f"int8{i}"])
    for bits in (2, 4, 8):
        assert torch.equal(key_value(x, bits), GOLDEN[f"kv{bits}bit{i}"])


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def test_ternary_has_exactly_three_values() -> None:
    quantised = ternary(draw(96, 64))
    signs, scale = ternary_parts(draw(96, 64))
    assert sorted(quantised.unique().tolist()) == sorted([-float(scale), 0.0, float(scale)])
    assert signs.unique().tolist() == [-1.0, 0.0, 1.0]


def test_int8_levels_are_whole_and_reach_but_do_not_pass_127() -> None:
    levels, scale = int8_parts(draw(200, 48))
    assert torch.equal(levels, levels.round())
    assert torch.equal(levels.abs().amax(-1), torch.full((200,), 127.0))
    assert scale.shape == (200, 1)


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_key_value_has_at_most_its_levels(bits: int, integer: bool) -> None:
    x = draw(1, 4096)
    most = 2**bits - 1
    levels = key_value(x, bits, integer).unique()
    assert len(levels) <= most
    assert len(levels) > most // 2  # and uses them: a constant would pass the line above
    assert float(levels.abs().max()) == pytest.approx(float(x.abs().max()), rel=1e-6)


def test_integer_form_rounds_half_steps_to_even() -> None:
    # n_max · v / largest = 7 · v / 7: half steps stand exactly at v = 0.5, 1.5, 2.5
    x = torch.tensor([7.0, 0.5, 1.5, 2.5, -0.5, -1.5])
    assert key_value(x, 4, integer=True).tolist() == [7.0, 0.0, 2.0, 2.0, -0.0, -2.0]


@pytest.mark.parametrize("quantiser", [ternary, int8, lambda t: key_value(t, 4)])
def test_gradient_passes_straight_through(quantiser: object) -> None:
    x, upstream = draw(5, 16).requires_grad_(), draw(5, 16) + 1
    (quantiser(x) * upstream).sum().backward()  # type: ignore[operator]
    assert torch.equal(x.grad, upstream)


def test_zeros_stay_zeros() -> None:
    zeros = torch.zeros(3, 8)
    for quantised in (ternary(zeros), int8(zeros), key_value(zeros, 4)):
        assert torch.equal(quantised, zeros)


def test_bf16_is_rounded_to_levels_in_float32() -> None:
    x = draw(64, 128).bfloat16()
    assert torch.equal(int8_parts(x)[0], int8_parts(x.float())[0])
