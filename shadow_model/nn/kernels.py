"""The one place of optional kernels: what is installed for this machine, or None.

Liger's fused linear cross-entropy comes with the extra `gpu` (it brings Triton). Its forward
function is called, not its autograd function: that one would compute the logits a second time in
the backward where losses are wanted a token.

FBGEMM's int8 product comes with torch on x86 processors. It adds pairs of products in 16 bits:
exact for ternary weights, for 2 · 255 cannot overflow them. One thread of an AVX2 core computes a
product of one token over (1664, 512) in 56 us, float32 in 89 us; 64 tokens over (2736, 512) in
1.2 ms instead of 3.0. Small matrices (width 128) gain nothing.
"""

import importlib
import importlib.util
import platform
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_CHUNK_BUDGET = 8
"""Logits held at once, as a multiple of the features: fewer and larger products than Liger's 1."""

RowLoss = Callable[[Tensor, Tensor, Tensor, Tensor, bool], tuple[Tensor, Tensor]]


def _find_fused() -> Any:
    if not torch.cuda.is_available() or importlib.util.find_spec("liger_kernel") is None:
        return None
    module = importlib.import_module("liger_kernel.ops.fused_linear_cross_entropy")
    return module.fused_linear_cross_entropy_forward


_FUSED = _find_fused()


def _liger_cross_entropy(
    features: Tensor, rows: Tensor, bias: Tensor, targets: Tensor, learns: bool
) -> tuple[Tensor, Tensor]:
    losses, *_, slopes, _, _ = _FUSED(
        features,
        rows.to(features.dtype),
        targets,
        bias=bias.to(features.dtype),
        reduction="none",
        compute_gradients=learns,
        weight_requires_grad=False,
        chunk_mem_const=_CHUNK_BUDGET,
    )
    return losses, slopes


liger_cross_entropy: RowLoss | None = _liger_cross_entropy if _FUSED is not None else None
"""(features (N, 512) scaled, rows (V, 512), bias (V,), targets (N,), learns) -> losses (N,) float32
and their gradients (N, 512) by the features."""


Int8Product = Callable[[Tensor], Tensor]
"""Levels (..., K) within ±127, float32 -> their product (..., M) with a matrix, float32."""

_ZERO = 128
"""FBGEMM wants activations of 0..255."""


def _fbgemm_product(matrix: Tensor) -> Int8Product:
    """Pack a matrix (M, K) of -1, 0 and 1 for products with it."""
    with warnings.catch_warnings():
        # torch means to drop quantised tensors, of which this is the only use here
        warnings.simplefilter("ignore", UserWarning)
        signs = torch._make_per_tensor_quantized_tensor(matrix.to(torch.int8), 1.0, 0)
        packed = torch.ops.quantized.linear_prepack(signs, None)
    multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32

    def product(levels: Tensor) -> Tensor:
        out: Tensor = multiply(levels.float(), 1.0, _ZERO, packed)
        return out

    return product


def _has_fbgemm() -> bool:
    x86 = platform.machine().lower() in {"x86_64", "amd64"}
    return x86 and torch.backends.quantized.engine in {"x86", "fbgemm"}


int8_product: Callable[[Tensor], Int8Product] | None = _fbgemm_product if _has_fbgemm() else None
"""(matrix (M, K) of -1, 0 and 1) -> its product; None where this processor or torch has none."""
