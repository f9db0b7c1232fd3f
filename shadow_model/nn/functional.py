"""Small differentiable operators with their own backward, each saving what it needs and no more.

Legend: B batch, T tokens, H heads, D head width.

Source: RMSNorm (arXiv 1910.07467) without a weight; rotary embedding, half-split form (RoFormer,
arXiv 2104.09864, section 3.2.2); SwiGLU (arXiv 2002.05202).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from shadow_model.nn.quant import widen

RMS_EPS = 1e-6


class _Rms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        inverse = x.square().mean(-1, keepdim=True).add_(RMS_EPS).rsqrt_()
        y: Tensor = x * inverse
        ctx.save_for_backward(y, inverse)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        y, inverse = ctx.saved_tensors
        along = (grad * y).mean(-1, keepdim=True)
        return torch.addcmul(grad, y, along, value=-1).mul_(inverse)


def rms(x: Tensor) -> Tensor:
    """Return x / sqrt(mean(x²) + 1e-6) over the last axis; there is no weight."""
    if not torch.is_grad_enabled():  # generation is made of such small calls
        return x * x.square().mean(-1, keepdim=True).add_(RMS_EPS).rsqrt_()
    out: Tensor = _Rms.apply(x)
    return out


class Rotary(NamedTuple):
    """Cosines and sines of the rotary angles, each (T, 1, D/2)."""

    cos: Tensor
    sin: Tensor


def rotary_angles(
    tokens: int, head_width: int, base: float, device: torch.device | None = None, first: int = 0
) -> Rotary:
    """Return the rotary angles of `tokens` positions from `first` on.

    They are float32 whatever the model's dtype, and depend on nothing that changes: one forward
    computes them once for all its blocks.
    """
    half = head_width // 2
    step = torch.arange(half, dtype=torch.float32, device=device) / half
    position = torch.arange(first, first + tokens, dtype=torch.float32, device=device)
    angle = position[:, None, None] * base**-step
    return Rotary(angle.cos(), angle.sin())


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.dtype = x.dtype
        return _turn(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turn(grad, cos, -sin).to(ctx.dtype), None, None


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    x = widen(x)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    first, second = x.chunk(2, -1)
    turned = (first * cos).addcmul_(second, sin, value=-1), (second * cos).addcmul_(first, sin)
    return torch.cat(turned, -1)


def rotate(x_BTHD: Tensor, rotary: Rotary) -> Tensor:
    """Turn each pair (x[i], x[i + D/2]) by the angle of its position.

    Args:
        x_BTHD: (B, T, H, D), floating.
        rotary: Angles of the T positions.

    Returns:
        (B, T, H, D) contiguous; float32, or wider where x is.
    """
    if not torch.is_grad_enabled():
        return _turn(x_BTHD, rotary.cos, rotary.sin)
    out: Tensor = _Rotate.apply(x_BTHD, rotary.cos, rotary.sin)
    return out


class _GatedSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        gate, value = x.chunk(2, -1)
        return torch.nn.functional.silu(gate).mul_(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        gate, value = x.chunk(2, -1)
        sigmoid = gate.sigmoid()
        silu = gate * sigmoid
        # d silu = sigmoid + silu·(1 - sigmoid)
        slope = torch.addcmul(silu, silu, sigmoid, value=-1).add_(sigmoid)
        return torch.cat([slope.mul_(value).mul_(grad), silu.mul_(grad)], -1)


def gated_silu(x: Tensor) -> Tensor:
    """Return silu(a)·b of x = [a, b] along the last axis: (..., 2F) -> (..., F)."""
    out: Tensor = _GatedSilu.apply(x)
    return out
