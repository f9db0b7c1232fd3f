"""Optional kernels: absent without a CUDA device, equal to the plain loss on one."""

import pytest
import torch

from shadow_model.nn.cross_entropy import frozen_cross_entropy
from shadow_model.nn.kernels import int8_product, liger_cross_entropy
from shadow_model.nn.linear import SharedInput, TernaryWeight


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device may have the kernel")
def test_is_absent_without_a_device() -> None:
    assert liger_cross_entropy is None


@pytest.mark.gpu
@pytest.mark.skipif(liger_cross_entropy is None, reason="needs a CUDA device and liger-kernel")
def test_fused_loss_on_the_device_equals_the_plain_one() -> None:
    generator = torch.Generator().manual_seed(71)
    features = torch.randn(300, 512, generator=generator)
    signs = torch.randint(0, 2, (4112, 512), generator=generator).float() * 2 - 1
    bias = torch.randn(4112, generator=generator)
    targets = torch.randint(0, 4112, (300,), generator=generator)
    results = []
    for device in ("cpu", "cuda"):
        z = features.to(device).requires_grad_()
        arguments = (t.to(device) for t in (signs, bias, targets))
        losses = frozen_cross_entropy(z, *arguments, 512**-0.5)
        losses.sum().backward()
        results.append((losses.detach().cpu(), z.grad.cpu()))
    # 1e-2: the device may multiply float32 as TF32
    torch.testing.assert_close(results[0], results[1], rtol=1e-2, atol=1e-2)


@pytest.mark.skipif(int8_product is None, reason="FBGEMM's int8 products are for x86 processors")
@pytest.mark.parametrize("tokens", [1, 33])
def test_int8_products_of_ternary_matrices_are_exact(tokens: int) -> None:
    assert int8_product is not None
    generator = torch.Generator().manual_seed(1)
    matrix = torch.randint(-1, 2, (40, 1368), generator=generator).float()
    matrix[0] = 1  # the largest sums that there can be
    levels = torch.randint(-127, 128, (2, tokens, 1368), generator=generator).float()
    levels[0, 0] = 127
    assert torch.equal(int8_product(matrix)(levels), levels @ matrix.t())


@pytest.mark.skipif(int8_product is None, reason="FBGEMM's int8 products are for x86 processors")
def test_int8_linears_give_the_same_bits_and_follow_refresh() -> None:
    weights = [TernaryWeight(48, rows) for rows in (48, 12, 8)]
    shared = SharedInput(weights, detached=1, pad=8)
    for weight in weights:
        weight.initialise(torch.Generator().manual_seed(2))
    x = torch.randn(3, 5, 48, generator=torch.Generator().manual_seed(3))
    for scale in (1.0, -2.0):
        with torch.no_grad():
            for weight in weights:
                weight.weight.mul_(scale)
        shared.refresh()
        with torch.no_grad():
            for attached in (False, True):
                shared.use_int8(False)
                expected = shared(x, attached)
                shared.use_int8(True)
                assert torch.equal(shared(x, attached), expected)
