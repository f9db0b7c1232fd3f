"""Attention of a chunk's queries over its own keys and all that a carry kept before them.

Masks exist for a tile of queries at a time. Where attention is sparse, a tile's mask says which
blocks were chosen: it saves no work, but gives what `sparse_attention` gives over the whole.

Legend: B batch, S tokens of the chunk, T tokens up to its end, s queries of a tile, t keys that a
tile may see, H query heads, G key/value heads, D head width, I index width, N key blocks.

Source: segment-level recurrence (Transformer-XL, arXiv 1901.02860, section 3.2).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from shadow_model.nn.attention import dense_attention
from shadow_model.nn.quant import widen

_TILE = 256


class ChunkView(NamedTuple):
    """Where a chunk stands in its context.

    Attributes:
        first: Position of its first row.
        starts: (B, S) int64, the position that each row's document began at; None: rows read
            across documents.
        lowest: No row of the chunk reads a position before this one.
    """

    first: int
    starts: Tensor | None
    lowest: int

    @classmethod
    def of(cls, first: int, starts_BS: Tensor | None) -> "ChunkView":
        """Look at a chunk once, for all blocks."""
        return cls(first, starts_BS, 0 if starts_BS is None else int(starts_BS.min()))


class IndexBranch(NamedTuple):
    """The index branch of a chunk, and how it chooses.

    Attributes:
        query: (B, S, I), of the chunk's rows.
        key: (B, T, I), of all rows.
        block: Tokens of a key block.
        top: Past blocks chosen beside the own one.
    """

    query: Tensor
    key: Tensor
    block: int
    top: int


def chunk_attention(
    query_BSHD: Tensor,
    key_BTGD: Tensor,
    value_BTGD: Tensor,
    view: ChunkView,
    index: IndexBranch | None,
) -> Tensor:
    """Return softmax attention of the last S of T positions, scale D^-½.

    Args:
        query_BSHD: (B, S, H, D).
        key_BTGD: (B, T, G, D), G divides H.
        value_BTGD: (B, T, G, D).
        view: Where the chunk stands; its first position is T - S.
        index: Chooses the blocks that each query reads; None: queries read all they may.

    Returns:
        (B, S, H·D).
    """
    if view.first == 0 and view.starts is None and index is None:
        return dense_attention(query_BSHD, key_BTGD, value_BTGD)
    key, value = key_BTGD.to(query_BSHD.dtype), value_BTGD.to(query_BSHD.dtype)
    outs = []
    for low in range(0, query_BSHD.shape[1], _TILE):
        tile = slice(low, min(low + _TILE, query_BSHD.shape[1]))
        seen = slice(view.lowest, view.first + tile.stop)
        visible = _visible(tile, view, index, key.device)
        outs.append(_attend(query_BSHD[:, tile], key[:, seen], value[:, seen], visible))
    return torch.cat(outs, 1) if len(outs) > 1 else outs[0]


@torch.no_grad()
def choose_blocks(
    index: IndexBranch, rows: slice, first: int, starts_BS: Tensor | None = None
) -> Tensor:
    """Choose the key blocks of some of a chunk's queries, by the rule of `select_blocks`.

    Args:
        index: The index branch.
        rows: Which of the chunk's queries.
        first: Position of the chunk's first row.
        starts_BS: (B, S) int64, where each row's document began; None: documents do not matter.

    Returns:
        (B, s, N) bool; N counts blocks up to the last query's own.
    """
    position = torch.arange(rows.start, rows.stop, device=index.key.device) + first
    own_s, num_keys = position // index.block, first + rows.stop
    query, key = widen(index.query[:, rows]), widen(index.key[:, :num_keys])
    with torch.autocast(key.device.type, enabled=False):
        scores = query @ key.transpose(1, 2)
    if starts_BS is not None:
        time = torch.arange(num_keys, device=key.device)
        scores.masked_fill_(time < starts_BS[:, rows, None], -torch.inf)
    ragged = -num_keys % index.block
    scores = torch.nn.functional.pad(scores, (0, ragged), value=-torch.inf)
    best = scores.unflatten(-1, (-1, index.block)).amax(-1)
    block_N = torch.arange(best.shape[-1], device=key.device)
    best.masked_fill_(block_N >= own_s[:, None], -torch.inf)
    order = best.sort(dim=-1, descending=True, stable=True).indices[..., : index.top]
    chosen = torch.zeros_like(best, dtype=torch.bool).scatter_(2, order, True)
    found: Tensor = chosen & ~best.isneginf() | (block_N == own_s[:, None])
    return found


def _visible(
    rows: slice, view: ChunkView, index: IndexBranch | None, device: torch.device
) -> Tensor | None:
    """Return (B or 1, s, t) bool: which keys from `view.lowest` on each query of a tile reads."""
    if rows.stop - rows.start == 1 and view.starts is None and index is None:
        return None
    last = view.first + rows.stop
    time = torch.arange(view.lowest, last, device=device)
    position = torch.arange(view.first + rows.start, last, device=device)
    visible = (time <= position[:, None])[None]
    if view.starts is not None:
        visible = visible & (time >= view.starts[:, rows, None])
    if index is not None:
        chosen = choose_blocks(index, rows, view.first, view.starts)
        visible = visible & chosen.repeat_interleave(index.block, -1)[..., view.lowest : last]
    return visible


def _attend(
    query_BsHD: Tensor, key_BtGD: Tensor, value_BtGD: Tensor, visible: Tensor | None
) -> Tensor:
    """Attend with the heads of a group side by side as queries: keys are never repeated."""
    groups = key_BtGD.shape[2]
    query = query_BsHD.unflatten(2, (groups, -1)).permute(0, 2, 3, 1, 4)
    heads, rows = query.shape[2:4]
    if visible is not None:
        visible = visible[:, None].repeat(1, 1, heads, 1)
    out = torch.nn.functional.scaled_dot_product_attention(
        query.flatten(2, 3), key_BtGD.transpose(1, 2), value_BtGD.transpose(1, 2), visible
    )
    ungrouped: Tensor = out.unflatten(2, (heads, rows)).permute(0, 3, 1, 2, 4).flatten(2)
    return ungrouped
