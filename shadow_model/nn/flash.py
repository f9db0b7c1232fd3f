"""Softmax attention over many small equal tiles, with its log-sum-exp, and its backward.

The backward takes the output and the log-sum-exp of the *whole* softmax that a query took part in,
not of the tile alone: then what each tile returns is its exact share of the gradients, and tiles of
one query can be treated apart. A row whose log-sum-exp is +inf takes no part: its share is zero.

On a CPU both are torch's fused kernels, near the speed of the matrix products alone; elsewhere the
same arithmetic is written out.

Legend: N tiles, L queries and K keys of a tile, H query heads, G key/value heads, M = H/G, D head
width.

Source: FlashAttention (arXiv 2205.14135); shares from the whole log-sum-exp as in Ring Attention
(arXiv 2310.01889).
"""

from typing import NamedTuple

import torch
from torch import Tensor

_aten = torch.ops.aten
_fused = _aten._scaled_dot_product_flash_attention_for_cpu
_fused_backward = _aten._scaled_dot_product_flash_attention_for_cpu_backward


class Attended(NamedTuple):
    """Output of attention (..., D), and the log-sum-exp of its scores (...), both by query."""

    out: Tensor
    log_sum: Tensor


def attend(
    query_NHLD: Tensor,
    key_NGKD: Tensor,
    value_NGKD: Tensor,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
) -> Attended:
    """Return softmax attention of each tile, scale D^-½.

    Args:
        query_NHLD: (N, H, L, D) float32 or float64.
        key_NGKD: (N, G, K, D), G divides H.
        value_NGKD: (N, G, K, D).
        causal: Query i reads keys 0..i.
        mask: Added to the scores, broadcast to (N, H, L, K); every query keeps one key.

    Returns:
        (N, H, L, D) and (N, H, L).
    """
    if query_NHLD.is_cpu:
        return Attended(*_fused(query_NHLD, key_NGKD, value_NGKD, is_causal=causal, attn_mask=mask))
    return attend_plainly(query_NHLD, key_NGKD, value_NGKD, causal=causal, mask=mask)


def attend_backward(
    grad_NHLD: Tensor,
    query_NHLD: Tensor,
    key_NGKD: Tensor,
    value_NGKD: Tensor,
    attended: Attended,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tiles' shares of the gradients by query, key and value, shaped like them.

    Args:
        grad_NHLD: (N, H, L, D), by the output of the whole softmax.
        query_NHLD, key_NGKD, value_NGKD, causal, mask: As `attend` got them.
        attended: Output and log-sum-exp of the whole softmax, by tile: (N, H, L, D), (N, H, L).
    """
    arguments = (grad_NHLD, query_NHLD, key_NGKD, value_NGKD, *attended)
    if query_NHLD.is_cpu:
        grads: tuple[Tensor, Tensor, Tensor] = _fused_backward(
            *arguments, 0.0, causal, attn_mask=mask
        )
        return grads
    return attend_backward_plainly(*arguments, causal=causal, mask=mask)


def attend_plainly(
    query: Tensor, key: Tensor, value: Tensor, *, causal: bool = False, mask: Tensor | None = None
) -> Attended:
    """Compute `attend` by matrix products alone, on any device."""
    scores = _scores(query, key, causal, mask)
    log_sum = scores.logsumexp(-1)
    weight = (scores - log_sum[..., None]).exp_()
    out = weight @ value[:, :, None]
    return Attended(out.flatten(1, 2), log_sum.flatten(1, 2))


def attend_backward_plainly(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sum: Tensor,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `attend_backward` by matrix products alone, on any device."""
    groups, scale = key.shape[1], query.shape[-1] ** -0.5
    along = (grad * out).sum(-1, keepdim=True)
    grad, along, log_sum = (_grouped(x, groups) for x in (grad, along, log_sum[..., None]))
    weight = (_scores(query, key, causal, mask) - log_sum).exp_()
    slope = (grad @ value[:, :, None].mT).sub_(along).mul_(weight).mul_(scale)
    return (
        (slope @ key[:, :, None]).flatten(1, 2),
        (slope.mT @ _grouped(query, groups)).sum(2),
        (weight.mT @ grad).sum(2),
    )


def _grouped(x_NHLD: Tensor, groups: int) -> Tensor:
    grouped: Tensor = x_NHLD.unflatten(1, (groups, -1))
    return grouped


def _scores(query: Tensor, key: Tensor, causal: bool, mask: Tensor | None) -> Tensor:
    """Return masked scores (N, G, M, L, K)."""
    groups, scale = key.shape[1], query.shape[-1] ** -0.5
    scores = (_grouped(query, groups) @ key[:, :, None].mT).mul_(scale)
    if mask is not None:
        scores += mask[:, :, None] if mask.shape[1] == 1 else _grouped(mask, groups)
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu_(1)
        scores.masked_fill_(future, -torch.inf)
    return scores
