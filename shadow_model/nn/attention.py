"""Causal attention of many query heads over few key/value heads, dense or block-sparse.

Legend: B batch, T tokens, H query heads, G key/value heads, D head width.

Source: grouped queries (arXiv 2305.13245); MiniMax Sparse Attention (arXiv 2606.13392).
"""

import torch
from torch import Tensor

from shadow_model.nn.sparse import block_sparse_attention


def dense_attention(query_BTHD: Tensor, key_BTGD: Tensor, value_BTGD: Tensor) -> Tensor:
    """Return causal softmax attention, scale D^-½; keys are shared, never repeated.

    Args:
        query_BTHD: (B, T, H, D).
        key_BTGD: (B, T, G, D), G divides H.
        value_BTGD: (B, T, G, D).

    Returns:
        (B, T, H·D).
    """
    out_BHTD = torch.nn.functional.scaled_dot_product_attention(
        query_BTHD.transpose(1, 2),
        key_BTGD.transpose(1, 2),
        value_BTGD.transpose(1, 2),
        is_causal=True,
        enable_gqa=query_BTHD.shape[2] != key_BTGD.shape[2],
    )
    return out_BHTD.transpose(1, 2).flatten(2)


def sparse_attention(
    query_BTHD: Tensor, key_BTGD: Tensor, value_BTGD: Tensor, chosen_BTN: Tensor, block: int
) -> Tensor:
    """Return attention over each query's chosen key blocks, causal within them.

    Args:
        query_BTHD: (B, T, H, D).
        key_BTGD: (B, T, G, D), G divides H.
        value_BTGD: (B, T, G, D).
        chosen_BTN: (B, T, N) bool, the same for all heads; own blocks are chosen.
        block: Tokens of a key block.

    Returns:
        (B, T, H·D).
    """
    return block_sparse_attention(query_BTHD, key_BTGD, value_BTGD, chosen_BTN, block).flatten(2)
