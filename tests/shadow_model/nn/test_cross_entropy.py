"""The fused loss against torch's own, values and gradients."""

import pytest
import torch
from torch import Tensor

from shadow_model.nn import cross_entropy
from shadow_model.nn.cross_entropy import _FrozenCrossEntropy, frozen_cross_entropy


def problem(num: int, rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(12)
    features = torch.randn(num, 512, generator=generator, dtype=dtype)
    signs = torch.randint(0, 2, (rows, 512), generator=generator).to(dtype) * 2 - 1
    bias = torch.randn(rows, generator=generator, dtype=dtype)
    return features, signs, bias, torch.randint(0, rows, (num,), generator=generator)


@pytest.mark.parametrize("chunk_bytes", [1, 200_000, 2**30])
def test_fused_equals_plain(chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "CHUNK_BYTES", chunk_bytes)
    features, signs, bias, targets = problem(90, 301, torch.float64)
    weight = torch.linspace(0, 2, 90, dtype=torch.float64)
    results = []
    for fused in (True, False):
        z = features.clone().requires_grad_()
        if fused:
            losses = _FrozenCrossEntropy.apply(z, signs, bias, targets, 512**-0.5)
        else:
            logits = z @ signs.t() * 512**-0.5 + bias
            losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        (losses * weight).sum().backward()
        results.append((losses.detach(), z.grad))
    # 1e-12: float64 sums in another order
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12)


def test_is_float32_whatever_the_features_and_autocast() -> None:
    features, signs, bias, targets = problem(20, 64, torch.float32)
    expected = frozen_cross_entropy(features, signs, bias, targets, 0.04)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(frozen_cross_entropy(features, signs, bias, targets, 0.04), expected)
    z = features.bfloat16().requires_grad_()
    losses = frozen_cross_entropy(z, signs, bias, targets, 0.04)
    losses.sum().backward()
    assert losses.dtype == torch.float32
    assert z.grad.dtype == torch.bfloat16


def test_large_logits_do_not_overflow() -> None:
    features, signs, bias, targets = problem(4, 32, torch.float32)
    losses = frozen_cross_entropy(features * 1e4, signs, bias, targets, 1.0)
    assert torch.isfinite(losses).all()
