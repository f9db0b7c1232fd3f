"""The index branch: which key blocks a query reads, and the loss that teaches it.

A key block's score for a query is the causal maximum of its tokens' scores. A query reads its own
block and the best past ones; ties go to the lower block. The loss is the divergence of the
student's softmax over blocks from the attention mass of the main heads, at a few query positions.

Legend: B batch, T tokens, N key blocks, S query positions, I index width, H heads, G key/value
heads, D head width.

Source: MiniMax Sparse Attention (arXiv 2606.13392).
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from shadow_model.nn.quant import widen

_LOG_FLOOR = 1e-9
_TILE_SCORES = 1 << 22
"""Most scores of the selection held at once: 16 MiB."""


def _in_float32(like: Tensor) -> torch.autocast:
    # autocast would turn the products of float32 operands into bf16 ones
    return torch.autocast(like.device.type, enabled=False)


def draw_query_positions(
    seed: int,
    step: int,
    calls: int,
    tokens: int,
    block: int = 128,
    num: int = 64,
    micro_batch: int = 0,
) -> Tensor:
    """Draw the query positions of the index loss, a row for each block call.

    A row depends on (seed, step, micro_batch, call) alone: neither on the number of calls nor on
    any generator's state.

    Args:
        seed: The run's seed.
        step: The optimiser step.
        calls: Block calls of the forward.
        tokens: Window length T; positions lie within [block, T).
        block: Tokens of a key block.
        num: Positions a call, drawn with replacement.
        micro_batch: Which part of the step's batch.

    Returns:
        (calls, num) int64, each row sorted; (calls, 0) where T is shorter than two blocks.
    """
    if tokens < 2 * block:
        return torch.zeros(calls, 0, dtype=torch.int64)
    rows = [
        np.random.default_rng((seed, step, micro_batch, call)).integers(block, tokens, num)
        for call in range(calls)
    ]
    return torch.from_numpy(np.sort(np.stack(rows), axis=1))


def index_kl(
    index_query_BTI: Tensor,
    index_key_BTI: Tensor,
    query_BTHD: Tensor,
    key_BTGD: Tensor,
    positions: Tensor,
    block: int,
    chosen_BTN: Tensor | None = None,
    first_BT: Tensor | None = None,
) -> Tensor:
    """Return the mean divergence of the index branch from the main heads' attention.

    Given what the main heads read, teacher and student are distributions over that alone, as
    where sparse attention was trained this way (DeepSeek-V3.2, arXiv 2512.02556):
    scores of keys that the main heads never read teach nothing sound.

    Args:
        index_query_BTI: (B, T, I), learns.
        index_key_BTI: (B, T, I), learns.
        query_BTHD: (B, T, H, D) after rotation; no gradient flows into it.
        key_BTGD: (B, T, G, D) rotated and quantised; no gradient flows into it.
        positions: (S,) int64 query positions.
        block: Tokens of a key block.
        chosen_BTN: (B, T, N) bool, the blocks that every query reads; None: all past ones.
        first_BT: (B, T) int64, the place of the first token that each query may read; None: 0.

    Returns:
        0-d float32, mean over the batch and the positions.
    """
    chosen_BSN = None if chosen_BTN is None else chosen_BTN[:, positions]
    unread = _unread(positions, key_BTGD.shape[1], first_BT)
    target_BSN = _block_mass(query_BTHD[:, positions], key_BTGD, unread, block, chosen_BSN)
    scores_BSN = _block_scores(index_query_BTI[:, positions], index_key_BTI, unread, block)
    if chosen_BSN is not None:
        scores_BSN = scores_BSN.masked_fill(~chosen_BSN, -torch.inf)
    log_student = scores_BSN.log_softmax(-1).masked_fill(scores_BSN.isneginf(), 0.0)
    divergence = target_BSN * ((target_BSN + _LOG_FLOOR).log() - log_student)
    mean: Tensor = divergence.sum(-1).mean()
    return mean


def select_blocks(
    index_query_BTI: Tensor,
    index_key_BTI: Tensor,
    block: int,
    top: int,
    first_BT: Tensor | None = None,
) -> Tensor:
    """Choose the key blocks of every query, a tile of queries at a time.

    Args:
        index_query_BTI: (B, T, I); neither learns from the choice.
        index_key_BTI: (B, T, I).
        block: Tokens of a key block.
        top: Past blocks chosen beside the own one.
        first_BT: (B, T) int64, the place of the first token that each query may read; blocks
            that hold none of them are not chosen. None: 0.

    Returns:
        (B, T, N) bool; each query's own block, and the `top` best past blocks (all of them where
        there are no more).
    """
    chosen: Tensor = _select(index_query_BTI.detach(), index_key_BTI.detach(), first_BT, block, top)
    return chosen


# an operator of the library: a compiled graph holds one node, not the loop over tiles
@torch.library.custom_op("shadow_model::select_blocks", mutates_args=())
def _select(
    query_BTI: Tensor, key_BTI: Tensor, first_BT: Tensor | None, block: int, top: int
) -> Tensor:
    batch, tokens, _ = query_BTI.shape
    query, key = widen(query_BTI), widen(key_BTI)
    plain, num_past = (top + 1) * block, (tokens - 1) // block
    number = torch.arange(num_past + 1, device=query.device)
    own = torch.arange(tokens, device=query.device) // block
    chosen = (number <= own[:, None]).repeat(batch, 1, 1)
    reach = chosen
    if first_BT is not None:
        reach = chosen & (number >= (first_BT // block)[..., None])
        chosen = reach.clone()
    for tile in _tiles(plain, tokens, batch * tokens, block):
        # past blocks are whole
        past = slice(0, (tile.stop - 1) // block)
        scores = _past_scores(query[:, tile], key, past.stop, block, first_BT)
        unread = ~reach[:, tile, past] | (number[past] == own[tile, None])
        best = scores.masked_fill_(unread, -torch.inf).sort(dim=-1, descending=True, stable=True)
        picked = torch.zeros_like(unread).scatter_(2, best.indices[..., :top], True)
        chosen[:, tile, past] = (picked & ~unread) | (number[past] == own[tile, None])
    return chosen


@_select.register_fake
def _(query: Tensor, _: Tensor, __: Tensor | None, block: int, ___: int) -> Tensor:
    batch, tokens, _____ = query.shape
    return query.new_empty(batch, tokens, (tokens - 1) // block + 1, dtype=torch.bool)


def _tiles(first: int, last: int, scores: int, block: int) -> Iterator[slice]:
    """Yield ranges of whole blocks, of so many queries as keep the scores within a limit."""
    step = max(1, _TILE_SCORES // (scores * block)) * block
    for start in range(first, last, step):
        yield slice(start, min(start + step, last))


def _past_scores(
    query_BQI: Tensor, key_BTI: Tensor, num_past: int, block: int, first_BT: Tensor | None
) -> Tensor:
    """Return (B, Q, blocks) largest scores of the first blocks, as readers beyond each see them."""
    keys = num_past * block
    with _in_float32(key_BTI):
        scores = query_BQI @ key_BTI[:, :keys].transpose(1, 2)
    if first_BT is not None:
        visible = visible_from_outside(first_BT, num_past, block)
        scores.masked_fill_(~visible.flatten(1)[:, None], -torch.inf)
    best: Tensor = scores.unflatten(-1, (num_past, block)).amax(-1)
    return best


def visible_from_outside(first_BT: Tensor, num_blocks: int, block: int) -> Tensor:
    """Tell which tokens of each block its readers in later blocks may see: (B, blocks, K) bool.

    A later position that may read any token of a block may read its last one, for what it may read
    is a run that ends at itself: what is hidden from that token is hidden from all later readers.
    """
    first_BN1 = first_BT[:, block - 1 : num_blocks * block : block, None]
    time = torch.arange(num_blocks * block, device=first_BT.device).view(num_blocks, block)
    return time >= first_BN1


def _block_scores(query_BSI: Tensor, key_BTI: Tensor, unread: Tensor, block: int) -> Tensor:
    scale = query_BSI.shape[-1] ** -0.5
    with _in_float32(key_BTI):
        scores = torch.matmul(query_BSI.float(), key_BTI.float().transpose(1, 2)) * scale
    scores = scores.masked_fill(unread, -torch.inf)
    # max and not amax: a compiled amax finds its place again by comparing recomputed scores, which
    # may differ in the last bit, and then its gradient is wrong
    best: Tensor = _into_blocks(scores, block, -torch.inf).max(-1).values
    return best


@torch.no_grad()
def _block_mass(
    query_BSHD: Tensor,
    key_BTGD: Tensor,
    unread: Tensor,
    block: int,
    chosen_BSN: Tensor | None,
) -> Tensor:
    key = key_BTGD.float()
    groups, width = key.shape[2:]
    query = query_BSHD.float().unflatten(2, (groups, -1))
    with _in_float32(key):
        scores = torch.einsum("bsghd,btgd->bghst", query, key) * width**-0.5
    scores.masked_fill_(unread[:, None, None] if unread.dim() == 3 else unread, -torch.inf)
    if chosen_BSN is not None:
        unread_BST = ~chosen_BSN.repeat_interleave(block, -1)[..., : key.shape[1]]
        scores.masked_fill_(unread_BST[:, None, None], -torch.inf)
    return _into_blocks(scores.softmax(-1).mean((1, 2)), block, 0.0).sum(-1)


def _unread(positions: Tensor, tokens: int, first_BT: Tensor | None) -> Tensor:
    """Return which keys the positions may not read: (S, T), or (B, S, T) where documents differ."""
    time = torch.arange(tokens, device=positions.device)
    future = time > positions[:, None]
    return future if first_BT is None else future | (time < first_BT[:, positions, None])


def _into_blocks(x: Tensor, block: int, fill: float) -> Tensor:
    ragged = -x.shape[-1] % block
    if ragged:
        x = torch.nn.functional.pad(x, (0, ragged), value=fill)
    return x.view(*x.shape[:-1], -1, block)
