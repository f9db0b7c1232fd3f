"""RMS, rotary and gated SiLU: golden values, and gradients against differences in float64."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from shadow_model.nn.functional import gated_silu, rms, rotary_angles, rotate

GOLDEN = load_file(Path(__file__).parents[2] / "golden" / "quantisers.safetensors")


def draw(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def test_rms_equals_golden() -> None:
    # 1e-6: a mean of 16 float32 squares may sum in another order
    torch.testing.assert_close(rms(GOLDEN["rope_in"]), GOLDEN["rms_out"], rtol=0, atol=1e-6)


def test_rotation_equals_golden() -> None:
    x_BHTD = GOLDEN["rope_in"]
    found = rotate(x_BHTD.transpose(1, 2), rotary_angles(x_BHTD.shape[2], x_BHTD.shape[3], 1e5))
    # 1e-6: the last bit of a float32 cosine or product
    torch.testing.assert_close(found.transpose(1, 2), GOLDEN["rope_out"], rtol=0, atol=1e-6)


def test_rotation_keeps_lengths_and_depends_on_distance_alone() -> None:
    rotary = rotary_angles(40, 8, 1e5)
    x, y = draw(8).detach(), draw(2, 8).detach()[1]
    turned_x = rotate(x.expand(1, 40, 1, 8), rotary)[0, :, 0]
    turned_y = rotate(y.expand(1, 40, 1, 8), rotary)[0, :, 0]
    products = turned_x @ turned_y.t()
    # 1e-5: the angles are float32, up to 40 radians
    torch.testing.assert_close(turned_x.norm(dim=-1), x.norm().expand(40), rtol=1e-5, atol=0)
    torch.testing.assert_close(products[5, 2], products[35, 32], rtol=0, atol=1e-5)
    assert abs(float(products[5, 2] - products[6, 2])) > 1e-3


@pytest.mark.parametrize("shape", [(3, 8), (2, 5, 16)])
def test_gradients_equal_differences(shape: tuple[int, ...]) -> None:
    assert torch.autograd.gradcheck(rms, draw(*shape))
    assert torch.autograd.gradcheck(gated_silu, draw(*shape))


def test_rotation_gradient_equals_differences() -> None:
    rotary = rotary_angles(4, 6, 1e5)
    assert torch.autograd.gradcheck(lambda x: rotate(x, rotary), draw(2, 4, 3, 6))


def test_gated_silu_equals_its_formula() -> None:
    x = draw(4, 10)
    expected = torch.nn.functional.silu(x[:, :5]) * x[:, 5:]
    torch.testing.assert_close(gated_silu(x), expected, rtol=1e-14, atol=0)


def test_rotation_of_bf16_is_float32() -> None:
    rotary = rotary_angles(4, 8, 1e5)
    x = draw(1, 4, 1, 8).detach().bfloat16()
    found = rotate(x, rotary)
    assert found.dtype == torch.float32
    assert torch.equal(found, rotate(x.float(), rotary))
