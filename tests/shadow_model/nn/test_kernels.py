"""Optional kernels: absent without a CUDA device, equal to the plain loss on one."""

import pytest
import torch

from shadow_model.nn.cross_entropy import frozen_cross_entropy
from shadow_model.nn.kernels import liger_cross_entropy


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
