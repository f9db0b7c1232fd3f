"""The one place of optional kernels: what is installed for this machine, or None.

Liger's fused linear cross-entropy comes with the extra `gpu` (it brings Triton).
"""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _find_fused() -> Any:
    if not torch.cuda.is_available() or importlib.util.find_spec("liger_kernel") is None:
        return None
    module = importlib.import_module("liger_kernel.ops.fused_linear_cross_entropy")
    return module.LigerFusedLinearCrossEntropyFunction


_FUSED = _find_fused()


def _liger_cross_entropy(features: Tensor, rows: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    dtype = features.dtype
    result = _FUSED.apply(
        features, rows.to(dtype), targets, bias.to(dtype), None, -100, 0.0, 0.0, "none"
    )
    losses: Tensor = (result[0] if isinstance(result, tuple) else result).float()
    return losses


liger_cross_entropy: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] | None = (
    _liger_cross_entropy if _FUSED is not None else None
)
"""(features (N, 512) already scaled, rows (V, 512), bias (V,), targets (N,)) -> nats (N,)."""
