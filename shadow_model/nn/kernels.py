"""The one place of optional kernels: what is installed for this machine, or None.

Liger's fused linear cross-entropy comes with the extra `gpu` (it brings Triton). Its forward
function is called, not its autograd function: that one would compute the logits a second time in
the backward where losses are wanted a token.
"""

import importlib
import importlib.util
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
