"""The blend reaches both of the norms that it lies between."""

import pytest
import torch
from torch.nn.functional import layer_norm

from shadow_model.slab.norm import EPSILON, LearnedNorm, rms_normalised


@pytest.mark.parametrize(("blend", "kappa"), [(-60.0, 0.0), (60.0, 1.0)])
def test_ends_are_rms_and_layer_norm(blend: float, kappa: float) -> None:
    x = torch.randn(3, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 2
    norm = LearnedNorm(8).double()
    with torch.no_grad():
        norm.blend.fill_(blend)
        norm.gain.copy_(torch.arange(8))
    expected = layer_norm(x, (8,), eps=EPSILON) if kappa else rms_normalised(x)
    assert torch.allclose(norm(x), expected * norm.gain, rtol=0, atol=1e-12)
    figures = norm.figures()
    assert float(figures["kappa"]) == pytest.approx(kappa, abs=1e-12)
    assert float(figures["gain_rms"]) == pytest.approx((sum(i * i for i in range(8)) / 8) ** 0.5)
