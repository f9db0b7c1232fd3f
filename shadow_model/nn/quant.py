"""Quantisers: ternary weights, int8 activations, n-bit keys and values.

Each one passes gradients straight through: forward the quantised value, backward the identity, and
nothing through the scales. None clamps: a value divided by its own largest magnitude cannot round
past the last level.

Source: BitNet b1.58 (arXiv 2402.17764, section 2) for the ternary and int8 forms.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

INT8_LEVELS = 127
_TERNARY_FLOOR, _INT8_FLOOR, _KV_FLOOR = 1e-8, 1e-6, 1e-8


def widen(x: Tensor) -> Tensor:
    """Return x in float32, or as it is where it is wider: rounding to levels needs the bits."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def ternary_parts(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Split a weight into signs and scale.

    Args:
        weight: Any shape, floating.

    Returns:
        Signs in {-1, 0, 1} of the weight's shape and dtype, and the 0-d scale, its mean magnitude.
    """
    scale = weight.abs().mean().clamp_min(_TERNARY_FLOOR)
    return (weight / scale).round_().clamp_(-1, 1), scale


def int8_parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """Split activations into whole numbers and one scale a token.

    Args:
        x: (..., width), floating; the last axis shares a scale.

    Returns:
        Levels within ±127 of x's shape, and scales (..., 1); float32, or wider where x is.
    """
    x = widen(x)
    scale = _largest(x).clamp_min_(_INT8_FLOOR).div_(INT8_LEVELS)
    return (x / scale).round_(), scale


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, quantised: Tensor) -> Tensor:  # noqa: ARG004
        return quantised

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ARG004
        return grad, None


def _pass_through(x: Tensor, quantised: Tensor) -> Tensor:
    out: Tensor = _StraightThrough.apply(x, quantised)
    return out


def ternary(weight: Tensor) -> Tensor:
    """Return a weight with exactly three values, straight-through."""
    with torch.no_grad():
        signs, scale = ternary_parts(weight)
        quantised = signs.mul_(scale)
    return _pass_through(weight, quantised)


def ternary_at(weight: Tensor, scale: Tensor) -> Tensor:
    """Return a weight in -scale, 0 and scale, straight-through.

    Args:
        weight: Floating.
        scale: Above 0, broadcast to the weight.
    """
    with torch.no_grad():
        quantised = (weight / scale).round_().clamp_(-1, 1).mul_(scale)
    return _pass_through(weight, quantised)


def int8(x: Tensor) -> Tensor:
    """Return activations (..., width) on 255 levels a token, straight-through."""
    with torch.no_grad():
        levels, scale = int8_parts(x)
        quantised = levels.mul_(scale).to(x.dtype)
    return _pass_through(x, quantised)


def key_value(t: Tensor, bits: int, integer: bool = False) -> Tensor:
    """Return keys or values quantised a head vector, straight-through.

    Args:
        t: (..., D), floating; the last axis shares a scale.
        bits: Levels are the whole numbers within ±(2^(bits-1) - 1).
        integer: Divide n_max·t by the largest magnitude, as an integer kernel does, instead of
            multiplying t / largest by n_max; the two differ at half steps.

    Returns:
        Same shape and dtype.
    """
    return on_levels(t, key_value_levels(t, bits, integer))


class KeyValueLevels(NamedTuple):
    """Head vectors on levels: codes · scale / levels.

    Attributes:
        codes: (..., D) whole numbers within ±levels, floating.
        scale: (..., 1) largest magnitude of each vector; float32, or wider where it was.
        levels: n_max.
    """

    codes: Tensor
    scale: Tensor
    levels: int


@torch.no_grad()
def key_value_levels(t: Tensor, bits: int, integer: bool = False) -> KeyValueLevels:
    """Return what `key_value` multiplies out."""
    levels = 2 ** (bits - 1) - 1
    wide = widen(t)
    scale = _largest(wide).clamp_min_(_KV_FLOOR)
    ratio = (wide * levels).div_(scale) if integer else (wide / scale).mul_(levels)
    return KeyValueLevels(ratio.round_(), scale, levels)


@torch.no_grad()
def from_levels(kept: KeyValueLevels) -> Tensor:
    """Return (..., D) of its levels, in the scale's dtype."""
    return (kept.codes * kept.scale).div_(kept.levels)


def on_levels(t: Tensor, kept: KeyValueLevels) -> Tensor:
    """Return t on the levels that were found for it, straight-through, in t's dtype."""
    return _pass_through(t, from_levels(kept).to(t.dtype))


def _largest(x: Tensor) -> Tensor:
    # an infinity norm would say the same, twenty times slower on a CPU
    return x.abs().amax(-1, keepdim=True)
