"""Masked scan: a leaky state a channel, cleared at documents, changed by written tokens alone.

    h*_t = A_t h*_{t-1} + B_t,   A_t = (1 - r_t) (w_t a_t + 1 - w_t),   B_t = w_t b_t
    visible_t = h*_t where written, else (1 - r_t) a_t h*_{t-1} + b_t; 0 where invalid

A reset is an exact zero of the coefficient. The recurrence is computed in blocks: within all blocks
at once, then from block to block; its backward is the same recurrence, backwards. Working in logs
instead loses two digits in float32.

Legend: B rows, T tokens of a chunk, D channels, C tokens of a block, N blocks.

Source: two-level scan (Blelloch 1990); resets (arXiv 2303.03982).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

_SMALLEST_BLOCK = 8


class Scanned(NamedTuple):
    """What a scan gives.

    Attributes:
        visible: (B, T, D), what each token sees, its own contribution among it.
        held: (B, T, D), the state after each token: without what unwritten tokens contributed.
        last: (B, D), the state after the chunk.
    """

    visible: Tensor
    held: Tensor
    last: Tensor


def masked_scan(
    decay_BTD: Tensor,
    value_BTD: Tensor,
    first_BD: Tensor | None,
    *,
    reset_BT: Tensor,
    write_BT: Tensor,
    valid_BT: Tensor,
) -> Scanned:
    """Scan a chunk.

    Args:
        decay_BTD: a, in [0, 1]; may be broadcast to `value_BTD`.
        value_BTD: b.
        first_BD: The state before the chunk; None: zeros.
        reset_BT: bool, the state is cleared before this token.
        write_BT: bool, among the valid: the token changes the state.
        valid_BT: bool, false for padding.
    """
    decay_BTD = decay_BTD.expand_as(value_BTD)
    if first_BD is None:
        first_BD = torch.zeros_like(value_BTD[:, 0])
    goes_on = (~reset_BT).unsqueeze(-1).to(value_BTD.dtype)
    writes = (write_BT & valid_BT).unsqueeze(-1)
    coefficient = goes_on * torch.where(writes, decay_BTD, torch.ones_like(decay_BTD))
    held = recurrence(coefficient, torch.where(writes, value_BTD, 0.0), first_BD)
    before = torch.cat([first_BD.unsqueeze(1), held[:, :-1]], 1)
    visible = torch.where(writes, held, goes_on * decay_BTD * before + value_BTD)
    return Scanned(torch.where(valid_BT.unsqueeze(-1), visible, 0.0), held, held[:, -1])


def recurrence(a_BTD: Tensor, b_BTD: Tensor, first_BD: Tensor) -> Tensor:
    """Return h_t = a_t h_{t-1} + b_t for all t, h_{-1} being `first_BD`: (B, T, D)."""
    out: Tensor = _Recurrence.apply(a_BTD, b_BTD, first_BD)
    return out


class _Recurrence(torch.autograd.Function):
    """Saves coefficients and states: the backward needs no other forward."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, first: Tensor) -> Tensor:
        h = _blocked(a, b, first)
        ctx.save_for_backward(a, h, first)
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, h, first = ctx.saved_tensors
        # d_t = grad_t + a_{t+1} d_{t+1}: the same recurrence from the end
        later = torch.cat([torch.zeros_like(a[:, :1]), a[:, 1:].flip(1)], 1)
        d = _blocked(later, grad.flip(1), torch.zeros_like(first)).flip(1)
        before = torch.cat([first.unsqueeze(1), h[:, :-1]], 1)
        return d * before, d, a[:, 0] * d[:, 0]


def _blocked(a_BTD: Tensor, b_BTD: Tensor, first_BD: Tensor) -> Tensor:
    rows, tokens, width = b_BTD.shape
    block = max(_SMALLEST_BLOCK, int(tokens**0.5))
    num = -(-tokens // block)
    missing = (0, 0, 0, num * block - tokens)
    a = pad(a_BTD, missing, value=1.0).view(rows, num, block, width)
    b = pad(b_BTD, missing).view(rows, num, block, width)
    states, products = _within_blocks(a, b)
    starts, start = [], first_BD
    for product, end in zip(products[:, :, -1].unbind(1), states[:, :, -1].unbind(1), strict=True):
        starts.append(start)
        start = torch.addcmul(end, product, start)
    whole = torch.addcmul(states, products, torch.stack(starts, 1).unsqueeze(2))
    return whole.view(rows, num * block, width)[:, :tokens]


def _within_blocks(a_BNCD: Tensor, b_BNCD: Tensor) -> tuple[Tensor, Tensor]:
    """Return the states of blocks that start from zero, and the running products of a."""
    states, products = torch.empty_like(b_BNCD), torch.empty_like(b_BNCD)
    state = torch.zeros_like(b_BNCD[:, :, 0])
    product = torch.ones_like(state)
    for place in range(b_BNCD.shape[2]):
        state = torch.addcmul(b_BNCD[:, :, place], a_BNCD[:, :, place], state)
        product = a_BNCD[:, :, place] * product
        states[:, :, place], products[:, :, place] = state, product
    return states, products
