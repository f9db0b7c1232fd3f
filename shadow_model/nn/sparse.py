"""Exact block-sparse attention: a loop over key blocks, each serving the queries that chose it.

The parts of a query's softmax are merged on line (running maximum and sum); no score matrix larger
than a key block's queries exists. Cost: O(T · chosen blocks · block). Backward is a second such
loop, from the saved log-sum-exp. Covered: any batch, any grouping of heads, a ragged last block.
Not covered: a fused device kernel; on a CPU the gathers cost more than they save below about 6,000
tokens, where dense causal attention is as fast.

Legend: B batch, T tokens, H query heads, G key/value heads, M = H/G, D head width, N key blocks,
n queries of one key block, K tokens of one key block.

Source: MiniMax Sparse Attention (arXiv 2606.13392); online softmax (arXiv 1805.02867).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor


class _Kept(NamedTuple):
    """What the backward needs of the forward, one batch row's worth: (G, T, M, D), (G, T, D)..."""

    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor
    log_sum: Tensor
    readers: tuple[Tensor, ...]
    block: int


def block_sparse_attention(
    query_BTHD: Tensor, key_BTGD: Tensor, value_BTGD: Tensor, chosen_BTN: Tensor, block: int
) -> Tensor:
    """Return causal softmax attention over the chosen blocks' tokens, scale D^-½.

    Args:
        query_BTHD: (B, T, H, D).
        key_BTGD: (B, T, G, D), G divides H.
        value_BTGD: (B, T, G, D).
        chosen_BTN: (B, T, N) bool; every query's own block is chosen, no later one is read.
        block: Tokens of a key block.

    Returns:
        (B, T, H, D), in the query's dtype.
    """
    key, value = key_BTGD.to(query_BTHD.dtype), value_BTGD.to(query_BTHD.dtype)
    out: Tensor = _forward(query_BTHD, key, value, chosen_BTN, block)[0]
    return out


# Operators of the library, so that a compiled graph holds each as one node: how many queries chose
# a block is known only when it runs.
@torch.library.custom_op("shadow_model::block_sparse_attention", mutates_args=())
def _forward(
    query: Tensor, key: Tensor, value: Tensor, chosen: Tensor, block: int
) -> tuple[Tensor, Tensor]:
    groups = key.shape[2]
    with torch.autocast(query.device.type, enabled=False):
        parts = [
            _attend(_grouped(q, groups), _by_group(k), _by_group(v), _readers(c, block), block)
            for q, k, v, c in zip(query, key, value, chosen, strict=True)
        ]
    out = torch.stack([_ungrouped(o) for o, _ in parts])
    return out, torch.stack([s for _, s in parts])


@_forward.register_fake
def _(*inputs: Any) -> tuple[Tensor, Tensor]:
    query, key = inputs[:2]
    batch, tokens, heads, _ = query.shape
    groups = key.shape[2]
    return query.new_empty(query.shape), query.new_empty(batch, groups, tokens, heads // groups)


@torch.library.custom_op("shadow_model::block_sparse_attention_backward", mutates_args=())
def _backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sum: Tensor,
    chosen: Tensor,
    block: int,
) -> tuple[Tensor, Tensor, Tensor]:
    groups = key.shape[2]
    with torch.autocast(query.device.type, enabled=False):
        grads = [
            _attend_backward(
                _grouped(grad[b], groups),
                _Kept(
                    _grouped(query[b], groups),
                    _by_group(key[b]),
                    _by_group(value[b]),
                    _grouped(out[b], groups),
                    log_sum[b],
                    _readers(chosen[b], block),
                    block,
                ),
            )
            for b in range(len(query))
        ]
    return (
        torch.stack([_ungrouped(g) for g, _, _ in grads]),
        torch.stack([g.transpose(0, 1) for _, g, _ in grads]),
        torch.stack([g.transpose(0, 1) for _, _, g in grads]),
    )


@_backward.register_fake
def _(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = inputs[1:4]
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.block = inputs
    ctx.save_for_backward(*tensors, *output)


def _differentiate(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    query, key, value, chosen, out, log_sum = ctx.saved_tensors
    grads = _backward(grad.contiguous(), query, key, value, out, log_sum, chosen, ctx.block)
    return (*grads, None, None)


_forward.register_autograd(_differentiate, setup_context=_save)


def _grouped(x_THD: Tensor, groups: int) -> Tensor:
    tokens, _, width = x_THD.shape
    return x_THD.view(tokens, groups, -1, width).transpose(0, 1).contiguous()


def _ungrouped(x_GTMD: Tensor) -> Tensor:
    return x_GTMD.transpose(0, 1).flatten(1, 2)


def _by_group(x_TGD: Tensor) -> Tensor:
    return x_TGD.transpose(0, 1).contiguous()


def _readers(chosen_TN: Tensor, block: int) -> tuple[Tensor, ...]:
    """Queries of each key block: all of its own tokens first, then the later ones that chose it."""
    tokens, time = len(chosen_TN), torch.arange(len(chosen_TN), device=chosen_TN.device)
    readers = []
    for j, chosen_T in enumerate(chosen_TN.t().contiguous()):
        first, last = j * block, min((j + 1) * block, tokens)
        readers.append(torch.cat([time[first:last], chosen_T[last:].nonzero()[:, 0] + last]))
    return tuple(readers)


def _scores(query_GnMD: Tensor, key_GKD: Tensor) -> Tensor:
    scale = key_GKD.shape[-1] ** -0.5
    groups, n, heads, _ = query_GnMD.shape
    flat = torch.bmm(query_GnMD.flatten(1, 2), key_GKD.transpose(1, 2))
    return flat.view(groups, n, heads, -1).mul_(scale)


def _mask_own(x_GnMK: Tensor, fill: float) -> None:
    """Fill the future of the first K queries, which are the key block's own tokens, in place."""
    size = x_GnMK.shape[-1]
    future = torch.ones(size, size, dtype=torch.bool, device=x_GnMK.device).triu_(1)
    x_GnMK[:, :size].masked_fill_(future[:, None], fill)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, readers: tuple[Tensor, ...], block: int
) -> tuple[Tensor, Tensor]:
    out = torch.zeros_like(query)
    top = torch.full(query.shape[:3], -torch.inf, dtype=query.dtype, device=query.device)
    total = torch.zeros_like(top)
    for key_j, value_j, rows in zip(
        key.split(block, 1), value.split(block, 1), readers, strict=True
    ):
        scores = _scores(query.index_select(1, rows), key_j)
        _mask_own(scores, -torch.inf)
        old = top.index_select(1, rows)
        new = torch.maximum(old, scores.amax(-1))
        shrink = old.sub_(new).exp_()
        weight = scores.sub_(new[..., None]).exp_()
        kept = out.index_select(1, rows).mul_(shrink[..., None])
        more = kept.flatten(1, 2).baddbmm_(weight.flatten(1, 2), value_j)
        out.index_copy_(1, rows, more.view_as(kept))
        total.index_copy_(1, rows, shrink.mul_(total.index_select(1, rows)).add_(weight.sum(-1)))
        top.index_copy_(1, rows, new)
    return out.div_(total[..., None]), total.log_().add_(top)


def _attend_backward(grad: Tensor, kept: _Kept) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value, out, log_sum, readers, block = kept
    scale = query.shape[-1] ** -0.5
    along = (grad * out).sum(-1)
    grad_query, grad_key, grad_value = map(torch.zeros_like, (query, key, value))
    tiles = (t.split(block, 1) for t in (key, value, grad_key, grad_value))
    for key_j, value_j, grad_key_j, grad_value_j, rows in zip(*tiles, readers, strict=True):
        query_j, grad_j = query.index_select(1, rows), grad.index_select(1, rows)
        flat_query, flat_grad = query_j.flatten(1, 2), grad_j.flatten(1, 2)
        weight = _scores(query_j, key_j).sub_(log_sum.index_select(1, rows)[..., None]).exp_()
        _mask_own(weight, 0.0)
        grad_value_j.copy_(torch.bmm(weight.flatten(1, 2).transpose(1, 2), flat_grad))
        slope = torch.bmm(flat_grad, value_j.transpose(1, 2)).view_as(weight)
        slope = slope.sub_(along.index_select(1, rows)[..., None]).mul_(weight).mul_(scale)
        flat_slope = slope.flatten(1, 2)
        grad_key_j.copy_(torch.bmm(flat_slope.transpose(1, 2), flat_query))
        grad_query.index_add_(1, rows, torch.bmm(flat_slope, key_j).view_as(query_j))
    return grad_query, grad_key, grad_value
