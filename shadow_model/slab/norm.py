"""A learned blend of RMS and layer normalisation.

    y = (x - κ μ) / sqrt(mean((x - κ μ)²) + ε) · γ,   κ = σ(k) learned: 0 is RMS, 1 is layer norm

The mean μ runs over all neurons of a token's grid. Legend: H neurons, `...` all axes before.

Source: RMS normalisation (arXiv 1910.07467); layer normalisation (arXiv 1607.06450).
"""

import torch
from torch import Tensor, nn

EPSILON = 1e-6
_FIRST_BLEND = -2.0
"""σ of it is .12: nearly RMS at the start."""


def rms_normalised(x: Tensor) -> Tensor:
    """Return x over its root mean square along the last axis."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON)


class LearnedNorm(nn.Module):
    """The blend, with one κ and a gain a neuron: (..., H) -> (..., H)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.blend = nn.Parameter(torch.tensor(_FIRST_BLEND))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise."""
        centred = x - torch.sigmoid(self.blend) * x.mean(-1, keepdim=True)
        return rms_normalised(centred) * self.gain

    def figures(self) -> dict[str, Tensor]:
        """Return κ and the root mean square of the gain, detached."""
        return {
            "kappa": torch.sigmoid(self.blend).detach(),
            "gain_rms": self.gain.detach().square().mean().sqrt(),
        }
