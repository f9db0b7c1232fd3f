"""Cross-entropy over a frozen row set without ever holding all logits.

On a CPU, and on CUDA without Liger, the gradient of the features is computed in the forward, chunk
by chunk, from the probabilities that the loss needs anyway; nothing is computed twice. On CUDA
Liger's fused linear cross-entropy does the same with Triton.

Legend: N positions, V rows, C positions of a chunk.

Source: Cut Your Losses (arXiv 2411.09009) for the idea of fusing; Liger Kernel (arXiv 2410.10989).
"""

from typing import Any

import torch
from torch import Tensor

from shadow_model.nn.kernels import liger_cross_entropy

CHUNK_BYTES = 24 * 2**20
"""Of one chunk's logits: enough rows for a fast product, below the size that malloc returns."""


def frozen_cross_entropy(
    features: Tensor, rows: Tensor, bias: Tensor, targets: Tensor, scale: float
) -> Tensor:
    """Return the cross-entropy of each position.

    Args:
        features: (N, 512).
        rows: (V, 512) ±1 codes, frozen.
        bias: (V,) added to the logits, frozen.
        targets: (N,) int64 places within the rows.
        scale: Of the products, before the bias.

    Returns:
        (N,) nats, in the dtype of the rows (float32).
    """
    losses: Tensor = _FrozenCrossEntropy.apply(features, rows, bias, targets, scale)
    return losses


class _FrozenCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, rows: Tensor, bias: Tensor, targets: Tensor, scale: float
    ) -> Tensor:
        learns = ctx.needs_input_grad[0]
        ctx.dtype = features.dtype
        with torch.autocast(features.device.type, enabled=False):
            if features.is_cuda and liger_cross_entropy is not None:
                losses, slope = liger_cross_entropy(features * scale, rows, bias, targets, learns)
                slope = slope * scale
            else:
                losses, slope = _chunked(
                    features.to(rows.dtype), rows, bias, targets, scale, learns
                )
        if learns:
            ctx.save_for_backward(slope)
        return losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return (slope * grad[:, None]).to(ctx.dtype), None, None, None, None


def _chunked(
    features: Tensor, rows: Tensor, bias: Tensor, targets: Tensor, scale: float, learns: bool
) -> tuple[Tensor, Tensor]:
    chunk = max(16, CHUNK_BYTES // (rows.shape[0] * features.element_size()))
    parts = [
        _chunk_losses(f, rows, bias, t, scale, learns)
        for f, t in zip(features.split(chunk), targets.split(chunk), strict=True)
    ]
    return torch.cat([losses for losses, _ in parts]), torch.cat([slope for _, slope in parts])


def _chunk_losses(
    features: Tensor, rows: Tensor, bias: Tensor, targets: Tensor, scale: float, learns: bool
) -> tuple[Tensor, Tensor]:
    logits = torch.addmm(bias, features, rows.t(), alpha=scale)
    largest = logits.amax(-1, keepdim=True)
    at_target = logits.gather(1, targets[:, None])
    total = logits.sub_(largest).exp_().sum(-1, keepdim=True)
    losses = (total.log() + largest - at_target)[:, 0]
    if not learns:
        return losses, losses
    # the gradient of the logits is softmax - one_hot; both scales go onto the small product
    product = torch.mm(logits, rows).div_(total).sub_(rows[targets]).mul_(scale)
    return losses, product
