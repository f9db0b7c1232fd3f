"""The index branch: which key blocks a query reads, and the loss that teaches it.

A key block's score for a query is the causal maximum of its tokens' scores. A query reads its own
block and the best past ones; ties go to the lower block. The loss is the divergence of the
student's softmax over blocks from the attention mass of the main heads, at a few query positions.

Legend: B batch, T tokens, N key blocks, S query positions, I index width, H heads, G key/value
heads, D head width.

Source: MiniMax Sparse Attention (arXiv 2606.13392).
"""

import numpy as np
import torch
from torch import Tensor

_LOG_FLOOR = 1e-9


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
) -> Tensor:
    """Return the mean divergence of the index branch from the main heads' attention.

    Args:
        index_query_BTI: (B, T, I), learns.
        index_key_BTI: (B, T, I), learns.
        query_BTHD: (B, T, H, D) after rotation; no gradient flows into it.
        key_BTGD: (B, T, G, D) rotated and quantised; no gradient flows into it.
        positions: (S,) int64 query positions.
        block: Tokens of a key block.

    Returns:
        0-d float32, mean over the batch and the positions.
    """
    target_BSN = _block_mass(query_BTHD, key_BTGD, positions, block)
    scores_BSN = _block_scores(index_query_BTI[:, positions], index_key_BTI, positions, block)
    log_student = scores_BSN.log_softmax(-1).masked_fill(scores_BSN.isneginf(), 0.0)
    divergence = target_BSN * ((target_BSN + _LOG_FLOOR).log() - log_student)
    mean: Tensor = divergence.sum(-1).mean()
    return mean


@torch.no_grad()
def select_blocks(index_query_TI: Tensor, index_key_TI: Tensor, block: int, top: int) -> Tensor:
    """Choose the key blocks of every query, a tile of queries at a time.

    Args:
        index_query_TI: (B, T, I).
        index_key_TI: (B, T, I).
        block: Tokens of a key block.
        top: Past blocks chosen beside the own one.

    Returns:
        (B, T, N) bool; each query's own block, and the `top` best past blocks (all of them where
        there are no more).
    """
    batch, tokens, _ = index_query_TI.shape
    query, key = index_query_TI.float(), index_key_TI.float()
    num_blocks = -(-tokens // block)
    chosen = torch.zeros(batch, tokens, num_blocks, dtype=torch.bool, device=query.device)
    for own in range(num_blocks):
        first, last = own * block, min((own + 1) * block, tokens)
        chosen[:, first:last, own] = True
        if own <= top:
            chosen[:, first:last, :own] = True
            continue
        # past blocks are whole and in the past: no causal mask
        with _in_float32(key):
            token_scores = query[:, first:last] @ key[:, :first].transpose(1, 2)
        scores = token_scores.unflatten(-1, (own, block)).amax(-1)
        best = scores.sort(dim=-1, descending=True, stable=True).indices[..., :top]
        chosen[:, first:last].scatter_(2, best, True)
    return chosen


def _block_scores(query_BSI: Tensor, key_BTI: Tensor, positions: Tensor, block: int) -> Tensor:
    scale = query_BSI.shape[-1] ** -0.5
    with _in_float32(key_BTI):
        scores = torch.matmul(query_BSI.float(), key_BTI.float().transpose(1, 2)) * scale
    scores = scores.masked_fill(_future(positions, key_BTI.shape[1]), -torch.inf)
    # max and not amax: a compiled amax finds its place again by comparing recomputed scores, which
    # may differ in the last bit, and then its gradient is wrong
    best: Tensor = _into_blocks(scores, block, -torch.inf).max(-1).values
    return best


@torch.no_grad()
def _block_mass(query_BTHD: Tensor, key_BTGD: Tensor, positions: Tensor, block: int) -> Tensor:
    key = key_BTGD.float()
    groups, width = key.shape[2:]
    query = query_BTHD[:, positions].float().unflatten(2, (groups, -1))
    with _in_float32(key):
        scores = torch.einsum("bsghd,btgd->bghst", query, key) * width**-0.5
    scores.masked_fill_(_future(positions, key.shape[1]), -torch.inf)
    return _into_blocks(scores.softmax(-1).mean((1, 2)), block, 0.0).sum(-1)


def _future(positions: Tensor, tokens: int) -> Tensor:
    return torch.arange(tokens, device=positions.device) > positions[:, None]


def _into_blocks(x: Tensor, block: int, fill: float) -> Tensor:
    ragged = -x.shape[-1] % block
    if ragged:
        x = torch.nn.functional.pad(x, (0, ragged), value=fill)
    return x.view(*x.shape[:-1], -1, block)
