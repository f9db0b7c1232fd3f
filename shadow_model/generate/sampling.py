"""How the next row is drawn from its logits.

Source: top-k sampling (Fan et al. 2018, arXiv 1805.04833, section 5).
"""

import torch
from pydantic import Field
from torch import Tensor

from shadow_model.schema import Schema


class Sampling(Schema):
    """How rows are drawn."""

    temperature: float = Field(
        0.8, ge=0, le=10, description="logits are divided by it; 0 takes the best row each time"
    )
    top_k: int = Field(
        0, ge=0, le=1 << 20, description="rows that can be drawn, the best ones; 0: all"
    )
    seed: int = Field(0, ge=0, le=2**62, description="equal seeds draw equal rows")


def generators(sampling: Sampling, num: int) -> list[torch.Generator]:
    """Return a source of chance for each of `num` sequences; none depends on how many there are."""
    return [torch.Generator().manual_seed(sampling.seed + number) for number in range(num)]


def draw(
    logits_V: Tensor, allowed_V: Tensor, sampling: Sampling, generator: torch.Generator
) -> int:
    """Draw a place.

    Args:
        logits_V: (V,) floating.
        allowed_V: (V,) bool, at least one.
        sampling: How.
        generator: On the CPU.

    Returns:
        A place within [0, V); the lowest of equally good ones where the best is taken.
    """
    logits = logits_V.double().masked_fill(~allowed_V, -torch.inf)
    if sampling.temperature == 0:
        return int(logits.argmax())
    logits = logits / sampling.temperature
    if 0 < sampling.top_k < len(logits):
        least = logits.topk(sampling.top_k).values[-1]
        logits = logits.masked_fill(logits < least, -torch.inf)
    # one number a row, whatever else is drawn: the place at which the summed shares pass it
    chance = torch.rand((), generator=generator, dtype=torch.float64)
    sums = logits.softmax(-1).cumsum(-1)
    place = int(torch.searchsorted(sums, chance * sums[-1], right=True))
    return min(place, len(logits) - 1)
