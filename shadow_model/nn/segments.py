"""Causal attention within segments that lie side by side: documents, or one block of each.

Segments of about the same length are padded into one tile each and go through the kernel together;
nothing longer than a segment is squared. On CUDA in half precision they are packed runs.

Legend: B batch, T tokens, S = B·T, H query heads, G key/value heads, D head width, n segments, L
padded tokens of a segment.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shadow_model.nn import varlen
from shadow_model.nn.flash import Attended, attend, attend_backward

_FINENESS = 8
"""Padded lengths are this many times a power of two, up to twice as many times."""


class _Tiles(NamedTuple):
    """Segments of one padded length: (n, L) int64 places among the S tokens, S for padding."""

    places: Tensor
    num_tokens: int
    is_padded: bool

    def take(self, x: Tensor) -> Tensor:
        """Gather (S, H, D) or (S, H) as (n, H, L, D) or (n, H, L); padding repeats a token."""
        places = self.places.clamp_max(self.num_tokens - 1) if self.is_padded else self.places
        taken: Tensor = x.index_select(0, places.flatten()).unflatten(0, places.shape)
        return taken.transpose(1, 2)

    def log_sum(self, log_sum_SH: Tensor) -> Tensor:
        """Gather the log-sum-exp; padding takes no part."""
        taken = self.take(log_sum_SH).contiguous()
        if self.is_padded:
            taken.masked_fill_((self.places == self.num_tokens)[:, None], torch.inf)
        return taken

    def put(self, into: Tensor, x: Tensor) -> None:
        """Scatter (n, H, L, ...) into (S + 1, H, ...), whose last row takes the padding."""
        into.index_copy_(0, self.places.flatten(), x.transpose(1, 2).flatten(0, 1))


def document_attention(
    query_BTHD: Tensor, key_BTGD: Tensor, value_BTGD: Tensor, first_BT: Tensor
) -> Tensor:
    """Return causal softmax attention within documents, scale D^-½.

    Args:
        query_BTHD: (B, T, H, D).
        key_BTGD: (B, T, G, D), G divides H.
        value_BTGD: (B, T, G, D).
        first_BT: (B, T) int64, the place of the first token of each position's document.

    Returns:
        (B, T, H, D), in the query's dtype.
    """
    out: Tensor = _forward(
        query_BTHD, key_BTGD.to(query_BTHD.dtype), value_BTGD.to(query_BTHD.dtype), first_BT
    )[0]
    return out


def attend_segments(query: Tensor, key: Tensor, value: Tensor, first_BT: Tensor) -> Attended:
    """Return causal attention within segments: (B, T, H, D), and log-sum-exp (B, T, H).

    Args:
        query: (B, T, H, D).
        key: (B, T, G, D).
        value: (B, T, G, D).
        first_BT: (B, T) int64, the place of the first token of each position's segment.
    """
    bounds, shape = _bounds(first_BT), query.shape
    if not varlen.supports(query) and len(bounds) == len(first_BT) + 1:
        return _attend_windows(query, key, value)
    query, key, value = (x.flatten(0, 1).contiguous() for x in (query, key, value))
    if varlen.supports(query):
        found = varlen.attend_runs(query, key, value, _runs(bounds, shape[1]))
    else:
        found = _attend_tiles(query, key, value, bounds)
    return Attended(found.out.view(shape), found.log_sum.reshape(shape[:3]))


def attend_segments_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attended: Attended,
    first_BT: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the segments' shares of the gradients by query, key and value, shaped like them.

    Args:
        grad: (B, T, H, D), by the output of the whole softmax.
        query, key, value, first_BT: As `attend_segments` got them.
        attended: Output and log-sum-exp of the whole softmax, (B, T, H, D) and (B, T, H).
    """
    bounds = _bounds(first_BT)
    if not varlen.supports(query) and len(bounds) == len(first_BT) + 1:
        return _attend_windows_backward(grad, query, key, value, attended)
    flat = (grad, query, key, value)
    grad_S, query_S, key_S, value_S = (x.flatten(0, 1).contiguous() for x in flat)
    whole = Attended(*(x.flatten(0, 1) for x in attended))
    if varlen.supports(query):
        runs = _runs(bounds, query.shape[1])
        grads = varlen.attend_runs_backward(grad_S, query_S, key_S, value_S, whole, runs)
    else:
        grads = _attend_tiles_backward(grad_S, query_S, key_S, value_S, whole, bounds)
    return grads[0].view_as(query), grads[1].view_as(key), grads[2].view_as(value)


def _attend_windows(query: Tensor, key: Tensor, value: Tensor) -> Attended:
    turned = (x.transpose(1, 2) for x in (query, key, value))
    return Attended(*(x.transpose(1, 2) for x in attend(*turned, causal=True)))


def _attend_windows_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, attended: Attended
) -> tuple[Tensor, Tensor, Tensor]:
    grad, query, key, value = (x.transpose(1, 2) for x in (grad, query, key, value))
    whole = Attended(*(x.transpose(1, 2).contiguous() for x in attended))
    grads = attend_backward(grad, query, key, value, whole, causal=True)
    return grads[0].transpose(1, 2), grads[1].transpose(1, 2), grads[2].transpose(1, 2)


def _bounds(first_BT: Tensor) -> Tensor:
    """Return (n + 1,) int64, where each segment begins among the B·T tokens, and B·T."""
    time = torch.arange(first_BT.shape[1], device=first_BT.device)
    starts = (first_BT == time).flatten().nonzero()[:, 0]
    return torch.nn.functional.pad(starts, (0, 1), value=first_BT.numel())


def _runs(bounds: Tensor, longest: int) -> varlen.Runs:
    bounds = bounds.int()
    return varlen.Runs(bounds, bounds, (longest, longest), causal=True)


def _tiles(bounds: Tensor) -> Iterator[_Tiles]:
    """Yield the segments by padded length."""
    starts, num_tokens = bounds[:-1], int(bounds[-1])
    lengths = bounds.diff()
    # 8..15 times a power of two: at most an eighth of a tile is padding
    step = 2 ** (lengths.double().log2().floor() - _FINENESS.bit_length() + 1).clamp_min(0).long()
    padded = (lengths + step - 1) // step * step
    for length in padded.unique().tolist():
        members = (padded == length).nonzero()[:, 0]
        inside = torch.arange(length, device=bounds.device)
        places = starts[members, None] + inside
        outside = inside >= lengths[members, None]
        yield _Tiles(places.masked_fill_(outside, num_tokens), num_tokens, bool(outside.any()))


def _attend_tiles(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor) -> Attended:
    num_tokens, heads, width = query.shape
    out = query.new_empty(num_tokens + 1, heads, width)
    log_sum = query.new_empty(num_tokens + 1, heads)
    for tiles in _tiles(bounds):
        query_n, key_n, value_n = (tiles.take(x) for x in (query, key, value))
        found = attend(query_n, key_n, value_n, causal=True)
        tiles.put(out, found.out)
        tiles.put(log_sum, found.log_sum)
    return Attended(out[:num_tokens], log_sum[:num_tokens])


def _attend_tiles_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, whole: Attended, bounds: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    num_tokens = len(query)
    grads = [x.new_empty(num_tokens + 1, *x.shape[1:]) for x in (query, key, value)]
    for tiles in _tiles(bounds):
        grad_n, query_n, key_n, value_n = (tiles.take(x) for x in (grad, query, key, value))
        attended = Attended(tiles.take(whole.out), tiles.log_sum(whole.log_sum))
        for into, part in zip(
            grads,
            attend_backward(grad_n, query_n, key_n, value_n, attended, causal=True),
            strict=True,
        ):
            tiles.put(into, part)
    return grads[0][:num_tokens], grads[1][:num_tokens], grads[2][:num_tokens]


# Operators of the library, so that a compiled graph holds each as one node: how many segments there
# are is known only when it runs.
@torch.library.custom_op("shadow_model::document_attention", mutates_args=())
def _forward(query: Tensor, key: Tensor, value: Tensor, first_BT: Tensor) -> tuple[Tensor, Tensor]:
    with torch.autocast(query.device.type, enabled=False):
        found = attend_segments(query, key, value, first_BT)
    return found.out.contiguous(), found.log_sum.contiguous()


@_forward.register_fake
def _(query: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return query.new_empty(query.shape), new_log_sum(query)


@torch.library.custom_op("shadow_model::document_attention_backward", mutates_args=())
def _backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sum: Tensor,
    first_BT: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    with torch.autocast(query.device.type, enabled=False):
        grads = attend_segments_backward(grad, query, key, value, Attended(out, log_sum), first_BT)
    return grads[0].contiguous(), grads[1].contiguous(), grads[2].contiguous()


@_backward.register_fake
def _(_: Tensor, query: Tensor, key: Tensor, value: Tensor, *__: Any) -> tuple[Tensor, ...]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


def new_log_sum(query_BTHD: Tensor) -> Tensor:
    """Return an empty log-sum-exp (B, T, H) of the dtype that the kernels give it."""
    dtype = torch.promote_types(query_BTHD.dtype, torch.float32)
    return query_BTHD.new_empty(query_BTHD.shape[:-1], dtype=dtype)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)


def _differentiate(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    query, key, value, first_BT, out, log_sum = ctx.saved_tensors
    return (*_backward(grad, query, key, value, out, log_sum, first_BT), None)


_forward.register_autograd(_differentiate, setup_context=_save)
