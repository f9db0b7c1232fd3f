"""Exact block-sparse attention: each query reads its own key block and those that it chose.

Queries are gathered by the key block that they chose, every block's queries attend to it in large
tiles, and each query's parts (its own block, the chosen ones) are merged by their log-sum-exp. The
backward gives every part the output and log-sum-exp of the whole softmax, so that its shares of the
gradients only have to be added. Cost: O(T · chosen blocks · block); the largest tensors are
gathered queries, a bounded number at once. Queries of the first blocks, for which everything past
is chosen, are not this operator's: plain causal attention serves them faster.

One algorithm for all devices; `flash.py` and `varlen.py` hold the kernels. Covered: any batch, any
grouping of heads, a ragged last block, documents.

Legend: B batch, T tokens, P tokens of the first blocks, Q = B·(T - P) queries, H query heads, G
key/value heads, M = H/G, D head width, N key blocks of a window, K tokens of a block, c most blocks
that a query chooses beside its own.

Source: MiniMax Sparse Attention (arXiv 2606.13392); merging by log-sum-exp as in FlashAttention
(arXiv 2205.14135).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shadow_model.nn import varlen
from shadow_model.nn.flash import Attended
from shadow_model.nn.index import visible_from_outside
from shadow_model.nn.pairs import (
    Blocks,
    Slots,
    attend_slots,
    attend_slots_backward,
    make_slots,
)
from shadow_model.nn.segments import attend_segments, attend_segments_backward, new_log_sum

_GATHERED = 1 << 22
"""Most values of gathered queries at once: 16 MiB of float32, which malloc still reuses."""


def num_plain_tokens(tokens: int, block: int, top: int) -> int:
    """Return how many first tokens of a window read all past blocks of theirs anyway (P)."""
    return min(tokens, (top + 1) * block)


def block_sparse_attention(
    query_BQHD: Tensor,
    key_BTGD: Tensor,
    value_BTGD: Tensor,
    chosen_BTN: Tensor,
    block: int,
    top: int,
    first_BT: Tensor | None = None,
) -> Tensor:
    """Return softmax attention over own and chosen blocks, for queries beyond the first blocks.

    Args:
        query_BQHD: (B, T - P, H, D), the queries from P = `num_plain_tokens` on, at least one.
        key_BTGD: (B, T, G, D), G divides H.
        value_BTGD: (B, T, G, D).
        chosen_BTN: (B, T, N) bool, at most `top` past blocks of each query; own ones are read
            whatever it says, later ones must not be chosen.
        block: Tokens of a key block.
        top: Past blocks a query may choose.
        first_BT: (B, T) int64, the place of the first token that each position may read; chosen
            blocks hold such tokens. None: 0.

    Returns:
        (B, T - P, H, D), in the query's dtype.
    """
    dtype = query_BQHD.dtype
    out: Tensor = _forward(
        query_BQHD, key_BTGD.to(dtype), value_BTGD.to(dtype), chosen_BTN, first_BT, block, top
    )[0]
    return out


class _Problem(NamedTuple):
    """Inputs in the forms that the parts want: tensors of the last T - P tokens, and blocks.

    Attributes:
        own: Query (B, T - P, H, D), key and value (B, T - P, G, D).
        own_first: (B, T - P) int64, where in those tokens the own part of each begins.
        blocks: The past blocks of all windows, Z = B·(N - 1).
        chosen: (Q, N - 1) bool, without own blocks.
        offset: (Q,) int64, each query's window's first block.
    """

    own: tuple[Tensor, Tensor, Tensor]
    own_first: Tensor
    blocks: Blocks
    chosen: Tensor
    offset: Tensor
    top: int

    @property
    def query(self) -> Tensor:
        """(Q, H, D)."""
        return self.own[0].flatten(0, 1)

    def slots(self, first: int, last: int) -> Slots:
        """Return the slots of queries first..last - 1."""
        heads = self.own[0].shape[2] // self.blocks.key.shape[2]
        tiled = not varlen.supports(self.own[0])
        chosen, offset = self.chosen[first:last], self.offset[first:last]
        return make_slots(chosen, offset, self.top, heads, tiled=tiled)


def _problem(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    chosen: Tensor,
    first_BT: Tensor | None,
    block: int,
    top: int,
) -> _Problem:
    batch, tokens = key.shape[:2]
    plain = num_plain_tokens(tokens, block, top)
    num_past = (tokens - 1) // block
    time = torch.arange(plain, tokens, device=key.device)
    own = time // block
    past = chosen[:, plain:, :num_past] & (
        torch.arange(num_past, device=key.device) != own[:, None]
    )
    own_first = (own * block).expand(batch, -1)
    if first_BT is not None:
        own_first = own_first.maximum(first_BT[:, plain:])
    offset = torch.arange(batch, device=key.device) * num_past
    return _Problem(
        (query, key[:, plain:], value[:, plain:]),
        own_first - plain,
        _blocks(key, value, first_BT, num_past, block),
        past.flatten(0, 1),
        offset.repeat_interleave(tokens - plain),
        top,
    )


def _blocks(
    key: Tensor, value: Tensor, first_BT: Tensor | None, num_past: int, block: int
) -> Blocks:
    whole = num_past * block
    visible = None
    if first_BT is not None:
        visible = visible_from_outside(first_BT, num_past, block).flatten(0, 1)
    key, value = (x[:, :whole].unflatten(1, (num_past, block)).flatten(0, 1) for x in (key, value))
    return Blocks(key, value, visible)


def _attend(problem: _Problem) -> Attended:
    own = attend_segments(*problem.own, problem.own_first)
    out, log_sum = own.out.flatten(0, 1).contiguous(), own.log_sum.flatten(0, 1).contiguous()
    query = problem.query
    width = query.shape[1] * query.shape[2]
    for first, last in _ranges(len(query), problem.top * width):
        slots = problem.slots(first, last)
        if not len(slots.query):  # short documents: nothing is read outside of own blocks
            continue
        part = attend_slots(query[first:last].index_select(0, slots.query), problem.blocks, slots)
        here = Attended(out[first:last], log_sum[first:last])
        out[first:last], log_sum[first:last] = _merged(here, part, slots.of_query)
    shape = problem.own[0].shape
    return Attended(out.view(shape), log_sum.view(shape[:3]))


def _ranges(count: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield ranges that cover 0..count - 1, of so many values of `width` as may be gathered."""
    step = max(1, _GATHERED // width)
    for first in range(0, count, step):
        yield first, min(first + step, count)


def _merged(own: Attended, part: Attended, of_query_Qc: Tensor) -> Attended:
    """Merge each query's own part (Q, H, D) with those in its slots (S, H, D)."""
    heads, most = own.out.shape[1], of_query_Qc.shape[1]
    dtype = own.log_sum.dtype
    missing = of_query_Qc < 0
    slot = of_query_Qc.clamp_min(0)
    rows_QHc = slot[:, None] * heads + torch.arange(heads, device=slot.device)[:, None]
    log_sums_QHc = part.log_sum.flatten()[rows_QHc].masked_fill_(missing[:, None], -torch.inf)
    log_sum = torch.cat([own.log_sum[..., None], log_sums_QHc], -1).logsumexp(-1)
    weight_QHc = (log_sums_QHc - log_sum[..., None]).exp_()
    chosen = torch.nn.functional.embedding_bag(
        rows_QHc.view(-1, most),
        part.out.flatten(0, 1).to(dtype),
        per_sample_weights=weight_QHc.view(-1, most),
        mode="sum",
    ).view(own.out.shape)
    share = (own.log_sum - log_sum).exp_()[..., None]
    return Attended((chosen + own.out * share).to(own.out.dtype), log_sum)


def _attend_backward(
    grad: Tensor, problem: _Problem, whole: Attended
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients by query, and by key and value: of the own parts, and of all blocks."""
    own_query, own_key, own_value = attend_segments_backward(
        grad, *problem.own, whole, problem.own_first
    )
    query, flat_grad = problem.query, grad.flatten(0, 1)
    flat = Attended(*(x.flatten(0, 1) for x in whole))
    grad_query = own_query.flatten(0, 1).contiguous()
    grad_key, grad_value = map(torch.zeros_like, problem.blocks[:2])
    slots = problem.slots(0, len(query))
    tile_width = slots.size * query.shape[1] * query.shape[2]
    for first, last in _ranges(len(slots.block), tile_width):
        part, blocks, span = slots.part(first, last, problem.blocks)
        grad_S, query_S, out_S, log_sum_S = (
            x.index_select(0, part.query) for x in (flat_grad, query, *flat)
        )
        by_query, by_key, by_value = attend_slots_backward(
            grad_S, query_S, Attended(out_S, log_sum_S), blocks, part
        )
        grad_query.index_add_(0, part.query, by_query)
        grad_key[span] += by_key
        grad_value[span] += by_value
    return grad_query.view_as(grad), own_key, own_value, grad_key, grad_value


def _joined(own: Tensor, past: Tensor, like: Tensor) -> Tensor:
    """Add the gradients of the last tokens' own parts and of the past blocks."""
    batch, tokens = like.shape[:2]
    joined = torch.zeros_like(like)
    joined[:, tokens - own.shape[1] :] = own
    joined[:, : past.shape[0] // batch * past.shape[1]] += past.view(batch, -1, *like.shape[2:])
    return joined


# Operators of the library, so that a compiled graph holds each as one node: how many queries chose
# a block is known only when it runs.
@torch.library.custom_op("shadow_model::block_sparse_attention", mutates_args=())
def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    chosen: Tensor,
    first_BT: Tensor | None,
    block: int,
    top: int,
) -> tuple[Tensor, Tensor]:
    with torch.autocast(query.device.type, enabled=False):
        found = _attend(_problem(query, key, value, chosen, first_BT, block, top))
    return found.out, found.log_sum


@_forward.register_fake
def _(query: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return query.new_empty(query.shape), new_log_sum(query)


@torch.library.custom_op("shadow_model::block_sparse_attention_backward", mutates_args=())
def _backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sum: Tensor,
    chosen: Tensor,
    first_BT: Tensor | None,
    block: int,
    top: int,
) -> tuple[Tensor, Tensor, Tensor]:
    with torch.autocast(query.device.type, enabled=False):
        problem = _problem(query, key, value, chosen, first_BT, block, top)
        by_query, *own, past_key, past_value = _attend_backward(
            grad, problem, Attended(out, log_sum)
        )
        return by_query, _joined(own[0], past_key, key), _joined(own[1], past_value, value)


@_backward.register_fake
def _(_: Tensor, query: Tensor, key: Tensor, value: Tensor, *__: Any) -> tuple[Tensor, ...]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.block, ctx.top = inputs
    ctx.save_for_backward(*tensors, *output)


def _differentiate(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    query, key, value, chosen, first_BT, out, log_sum = ctx.saved_tensors
    grads = _backward(grad, query, key, value, out, log_sum, chosen, first_BT, ctx.block, ctx.top)
    return (*grads, None, None, None, None)


_forward.register_autograd(_differentiate, setup_context=_save)
