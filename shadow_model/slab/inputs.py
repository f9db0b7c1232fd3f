"""The input stage: what the core reads of a token, its own content and its neighbourhood.

    ctx = W_pw norm(Σ_j w_j ∘ tap_j(e)),   content = W e + b,   kan = Σ_d T_d(tanh e) C_d
    core_in = content + ctx + kan

Legend: B rows, T tokens of a chunk, E width of an embedding, H neurons of the core, K taps.

Source: Kolmogorov-Arnold networks (arXiv 2404.19756) in Chebyshev polynomials (arXiv 2405.07200);
token shift (arXiv 2305.13048).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from shadow_model.slab.norm import LearnedNorm
from shadow_model.slab.shift import masked_shift


class ChebyshevMap(nn.Module):
    """A sum of learned functions of single inputs: (..., E) -> (..., H)."""

    def __init__(self, num_in: int, num_out: int, degree: int, generator: torch.Generator) -> None:
        super().__init__()
        scale = 1 / math.sqrt(num_in * degree)
        drawn = torch.randn(num_in * degree, num_out, generator=generator) * scale
        self.coefficients = nn.Parameter(drawn)
        self._degree = degree

    def forward(self, x: Tensor) -> Tensor:
        """Map; the polynomials are T_1 to T_degree, of tanh x."""
        squashed = torch.tanh(x)
        terms = [torch.ones_like(squashed), squashed]
        for _ in range(self._degree - 1):
            terms.append(2 * squashed * terms[-1] - terms[-2])
        return torch.cat(terms[1:], -1) @ self.coefficients


class Taken(NamedTuple):
    """What the input stage gives.

    Attributes:
        core_in: (B, T, H).
        last: (B, K, E), the written embeddings that the next chunk's neighbourhood begins with.
    """

    core_in: Tensor
    last: Tensor


class InputStage(nn.Module):
    """Embeddings becoming the core's input.

    Args:
        width_in: E.
        width: H.
        num_taps: Written tokens before a token that it sees.
        degree: Of the Chebyshev polynomials.
        generator: Draws the first weights.
    """

    def __init__(
        self, width_in: int, width: int, num_taps: int, degree: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self._num_taps = num_taps
        self.taps = nn.Parameter(torch.zeros(num_taps + 1, width_in))
        self.norm = LearnedNorm(width_in)
        self.point = nn.Parameter(_drawn(width_in, width, generator))
        self.content = nn.Parameter(_drawn(width_in, width, generator))
        self.bias = nn.Parameter(torch.zeros(width))
        self.kan = ChebyshevMap(width_in, width, degree, generator)
        with torch.no_grad():
            self.taps[0] = 1.0

    def forward(
        self,
        embedded_BTE: Tensor,
        before_BKE: Tensor | None,
        *,
        reset_BT: Tensor,
        write_BT: Tensor,
        valid_BT: Tensor,
    ) -> Taken:
        """Read a chunk; invalid tokens read as zeros, and give zeros."""
        there = valid_BT.unsqueeze(-1)
        own = torch.where(there, embedded_BTE, 0.0)
        shifted = masked_shift(
            own, before_BKE, self._num_taps, reset_BT=reset_BT, write_BT=write_BT & valid_BT
        )
        near = self.taps[0] * own + (self.taps[1:, None, None] * shifted.taps).sum(0)
        core_in = own @ self.content + self.bias + self.norm(near) @ self.point + self.kan(own)
        return Taken(torch.where(there, core_in, 0.0), shifted.last)


def _drawn(num_in: int, num_out: int, generator: torch.Generator) -> Tensor:
    return torch.randn(num_in, num_out, generator=generator) / math.sqrt(num_in)
