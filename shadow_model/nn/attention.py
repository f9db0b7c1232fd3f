"""Causal attention of many query heads over few key/value heads, dense or block-sparse.

With `first_BT` a position reads its own document alone; without it, the whole window before it.

Legend: B batch, T tokens, H query heads, G key/value heads, D head width.

Source: grouped queries (arXiv 2305.13245); MiniMax Sparse Attention (arXiv 2606.13392).
"""

import torch
from torch import Tensor

from shadow_model.nn.segments import document_attention
from shadow_model.nn.sparse import block_sparse_attention, num_plain_tokens


def dense_attention(
    query_BTHD: Tensor, key_BTGD: Tensor, value_BTGD: Tensor, first_BT: Tensor | None = None
) -> Tensor:
    """Return causal softmax attention, scale D^-½; keys are shared, never repeated.

    Args:
        query_BTHD: (B, T, H, D).
        key_BTGD: (B, T, G, D), G divides H.
        value_BTGD: (B, T, G, D).
        first_BT: (B, T) int64, the place of the first token of each position's document; None:
            the window is one document.

    Returns:
        (B, T, H·D).
    """
    return _dense(query_BTHD, key_BTGD, value_BTGD, first_BT).flatten(2)


def sparse_attention(
    query_BTHD: Tensor,
    key_BTGD: Tensor,
    value_BTGD: Tensor,
    chosen_BTN: Tensor,
    block: int,
    top: int,
    first_BT: Tensor | None = None,
) -> Tensor:
    """Return attention over each query's own and chosen key blocks, causal within them.

    Queries of the first `top + 1` blocks can choose all that is past; they are served densely. On a
    CPU, with 16 blocks of 128, this takes longer than dense attention at 4,096 tokens and less from
    8,192 on (measured on two cores: 1.6 times as fast there, twice as fast at 16,384; see
    `tests/benchmarks/attention.py`).

    Args:
        query_BTHD: (B, T, H, D).
        key_BTGD: (B, T, G, D), G divides H.
        value_BTGD: (B, T, G, D).
        chosen_BTN: (B, T, N) bool, of `select_blocks` with the same block, top and first_BT: the
            same for all heads, everything in the first blocks.
        block: Tokens of a key block.
        top: Past blocks chosen beside the own one.
        first_BT: As for `dense_attention`.

    Returns:
        (B, T, H·D).
    """
    plain = num_plain_tokens(query_BTHD.shape[1], block, top)
    first = None if first_BT is None else first_BT[:, :plain]
    out = _dense(query_BTHD[:, :plain], key_BTGD[:, :plain], value_BTGD[:, :plain], first)
    if plain < query_BTHD.shape[1]:
        rest = block_sparse_attention(
            _half_under_autocast(query_BTHD[:, plain:]),
            key_BTGD,
            value_BTGD,
            chosen_BTN,
            block,
            top,
            first_BT,
        )
        out = torch.cat([out, rest.to(out.dtype)], 1)
    return out.flatten(2)


def _dense(query: Tensor, key: Tensor, value: Tensor, first_BT: Tensor | None) -> Tensor:
    if first_BT is not None:
        return document_attention(_half_under_autocast(query), key, value, first_BT)
    out_BHTD = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        is_causal=True,
        enable_gqa=query.shape[2] != key.shape[2],
    )
    return out_BHTD.transpose(1, 2)


def _half_under_autocast(query: Tensor) -> Tensor:
    """Cast as autocast does for torch's own attention on CUDA; the CPU's half is slow."""
    if query.is_cuda and torch.is_autocast_enabled("cuda"):
        return query.to(torch.get_autocast_dtype("cuda"))
    return query
