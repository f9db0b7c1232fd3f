"""Engram: a memory of n-grams, looked up by hash and added to the residual.

    e     = the rows of the 16 n-grams that end here, gathered, then ternary     (16·W = width)
    k, v  = Wk e, Wv e
    gate  = sigmoid(signed sqrt(<rms x, rms k> / sqrt(d)))
    v     = gate · v
    y     = v + silu(sum over i < 4 of c_i · rms(v)[t - 3·i])                    depthwise, causal
    x     = x + y

Rows begin at zero, so that v is zero and the first step is the identity; the convolution begins at
zero as well, because rms has a slope of 1000 there. Whether the place "post" helps at this size
nothing published says: it is an ablation.

Legend: B batch, T tokens, d width, H heads, W head width.

Source: Engram (arXiv 2601.07372), sections on gating and the short convolution.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from shadow_model.nn.config import ModelConfig
from shadow_model.nn.functional import rms
from shadow_model.nn.linear import SharedInput, TernaryWeight
from shadow_model.nn.memory_rows import LearnedRows, PackedRows
from shadow_model.nn.ngrams import draw_multipliers, size_for
from shadow_model.nn.quant import widen

NUM_TAPS, DILATION = 4, 3
CONV_TAIL_TOKENS = (NUM_TAPS - 1) * DILATION
"""Positions before a chunk that its convolution reaches."""
_SQRT_FLOOR = 1e-6


class Recalled(NamedTuple):
    """What a memory returns for a chunk.

    Attributes:
        x: (B, T, d) residual with the memory's part added.
        tail: (B, up to 9, d) rms(v) of the last positions, for the chunk that follows.
    """

    x: Tensor
    tail: Tensor


class Engram(nn.Module):
    """One memory.

    Args:
        config: Of the model; `engram_entries` must be above 0.
        module: Which of the model's memories, from 0; it decides primes and multipliers.
        seed: Of the multipliers.
    """

    primes: Tensor
    multipliers: Tensor
    rows: LearnedRows | PackedRows

    def __init__(self, config: ModelConfig, module: int, seed: int) -> None:
        super().__init__()
        size = size_for(config.engram_entries, config.engram_width, module)
        self.rows = LearnedRows(size, config.quantise)
        self.key = TernaryWeight(config.engram_width, config.width)
        self.value = TernaryWeight(config.engram_width, config.width)
        form = {"integer": config.integer_products, "quantise": config.quantise}
        self.rows_in = SharedInput((self.key, self.value), **form)
        self.conv = nn.Parameter(torch.zeros(NUM_TAPS, config.width))
        self.register_buffer("primes", torch.tensor(size.primes), persistent=False)
        self.register_buffer("multipliers", draw_multipliers(seed, module))

    def forward(self, x: Tensor, slots: Tensor, starts: Tensor | None = None) -> Tensor:
        """Add what the memory holds for each position.

        Args:
            x: (B, T, d).
            slots: (B, T, H) int64 rows of each head's table.
            starts: (B, T) int64, where the document of each position begins, within the window;
                None lets the convolution see across documents.

        Returns:
            (B, T, d).
        """
        return self.recall(x, slots, starts).x

    def recall(
        self, x: Tensor, slots: Tensor, starts: Tensor | None = None, tail: Tensor | None = None
    ) -> Recalled:
        """Do what `forward` does for a chunk.

        Args:
            x: (B, T, d).
            slots: (B, T, H) int64.
            starts: (B, T) int64, negative where a document began before the chunk.
            tail: What the call of the chunk before returned; None at the beginning.
        """
        key, value = self.rows_in(self.rows(slots).flatten(2)).chunk(2, -1)
        value = _gate(x, widen(key)) * value
        normed = rms(value)
        seen = normed if tail is None else torch.cat([tail, normed], 1)
        mixed = self._convolve(seen, x.shape[1], starts)
        return Recalled(
            x + value + torch.nn.functional.silu(mixed), seen[:, -CONV_TAIL_TOKENS:].detach()
        )

    def refresh(self) -> None:
        """Make the ternary forms of rows and projections anew."""
        self.rows.refresh()
        self.rows_in.refresh()

    def _convolve(self, seen: Tensor, tokens: int, starts: Tensor | None) -> Tensor:
        before = seen.shape[1] - tokens
        padded = torch.nn.functional.pad(seen, (0, 0, CONV_TAIL_TOKENS - before, 0))
        time = torch.arange(tokens, device=seen.device)
        out = self.conv[0] * seen[:, before:]
        for tap in range(1, NUM_TAPS):
            first = CONV_TAIL_TOKENS - tap * DILATION
            past = padded[:, first : first + tokens]
            if starts is not None:
                past = past * (time - tap * DILATION >= starts)[..., None]
            out = out + self.conv[tap] * past
        return out


def _gate(x: Tensor, key: Tensor) -> Tensor:
    """Return (B, T, 1): how much of the memory each position lets in."""
    match = (rms(x) * rms(key)).sum(-1, keepdim=True) / math.sqrt(x.shape[-1])
    root = match.abs().clamp_min(_SQRT_FLOOR).sqrt() * match.sign()
    return root.sigmoid()
