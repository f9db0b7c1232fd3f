"""Queries gathered by the key block that they chose, and attention of each block's queries.

A query that chose c blocks stands in c slots; the slots of one block lie together. For the tile
kernel they fill tiles of equal size, so that a few large products serve all blocks; for the run
kernel on CUDA they lie without gaps. Keys of a block that its outside readers may not see (those
before the document that reaches out of the block) are masked or left out.

Legend: Q queries, Z key blocks of all windows, K tokens of a block, c slots of a query, n tiles, R
queries of a tile, S = n·R slots, H query heads, G key/value heads, M = H/G, D head width.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from shadow_model.nn import varlen
from shadow_model.nn.flash import Attended, attend, attend_backward

_FEWEST_ROWS, _MOST_ROWS = 64, 512
"""Rows (queries times heads of a group) of a tile: fewer waste the products, more are padding."""
_FILLED = 8
"""A block's queries fill at least about so many tiles: one in twice as many slots is padding."""


class Blocks(NamedTuple):
    """Key blocks: all whole.

    Attributes:
        key: (Z, K, G, D).
        value: (Z, K, G, D).
        visible: (Z, K) bool, the keys that readers outside the block may see; None: all.
    """

    key: Tensor
    value: Tensor
    visible: Tensor | None

    def mask(self) -> Tensor | None:
        """Return what is added to scores: (Z, 1, 1, K), or None."""
        if self.visible is None:
            return None
        zero = self.key.new_zeros(())
        return torch.where(self.visible, zero, -torch.inf)[:, None, None]


class Slots(NamedTuple):
    """Where queries stand.

    Attributes:
        query: (S,) int64, the query in each slot; any one in padding.
        padding: (S,) bool.
        of_query: (Q, c) int64, the slots of each query; -1 where it has fewer than c.
        block: (n,) int64, the key block of each tile, rising.
        size: R.
    """

    query: Tensor
    padding: Tensor
    of_query: Tensor
    block: Tensor
    size: int

    def part(self, first: int, last: int, blocks: Blocks) -> "tuple[Slots, Blocks, slice]":
        """Return some tiles alone (`of_query` stays that of all), their blocks and which those are.

        The tiles number the blocks anew.
        """
        rows = slice(first * self.size, last * self.size)
        block = self.block[first:last]
        span = slice(int(block[0]), int(block[-1]) + 1)
        part = self._replace(
            query=self.query[rows], padding=self.padding[rows], block=block - span.start
        )
        visible = None if blocks.visible is None else blocks.visible[span]
        return part, Blocks(blocks.key[span], blocks.value[span], visible), span


def make_slots(chosen_QN: Tensor, offset_Q: Tensor, most: int, heads: int, *, tiled: bool) -> Slots:
    """Give every chosen (query, block) pair a slot.

    Args:
        chosen_QN: (Q, N) bool, the blocks of its window that each query chose.
        offset_Q: (Q,) int64, number of the first block of each query's window among all.
        most: At least the blocks of any query (c).
        heads: Query heads of a group (M).
        tiled: Whether slots fill tiles; else a tile is one slot and there is no padding.
    """
    query, block = chosen_QN.nonzero().unbind(1)
    block += offset_Q[query]
    order = block.int().sort(stable=True).indices
    blocks, counts = block[order].unique_consecutive(return_counts=True)
    size = _tile_size(counts, heads) if tiled else 1
    num_tiles = (counts + size - 1) // size
    gap = (num_tiles * size - counts).cumsum(0) - (num_tiles * size - counts)
    slot = torch.arange(len(order), device=order.device) + gap.repeat_interleave(counts)
    total = int(num_tiles.sum()) * size
    in_slot = query.new_zeros(total).index_copy_(0, slot, query[order])
    padding = torch.ones(total, dtype=torch.bool, device=slot.device).index_fill_(0, slot, False)
    return Slots(
        in_slot,
        padding,
        _slots_of_queries(
            query, torch.empty_like(slot).index_copy_(0, order, slot), chosen_QN, most
        ),
        blocks.repeat_interleave(num_tiles),
        size,
    )


def _tile_size(counts: Tensor, heads: int) -> int:
    least, most = max(1, _FEWEST_ROWS // heads), max(1, _MOST_ROWS // heads)
    wanted = int(counts.double().mean()) // _FILLED if len(counts) else 0
    size = least
    while 2 * size <= min(wanted, most):
        size *= 2
    return size


def _slots_of_queries(query: Tensor, slot: Tensor, chosen_QN: Tensor, most: int) -> Tensor:
    """Return (Q, c) slots, from those of all pairs ordered by query."""
    counts = chosen_QN.sum(1)
    place = torch.arange(len(query), device=query.device) - (counts.cumsum(0) - counts)[query]
    table = query.new_full((len(chosen_QN) * most,), -1)
    return table.index_copy_(0, query * most + place, slot).view(-1, most)


def attend_slots(query_SHD: Tensor, blocks: Blocks, slots: Slots) -> Attended:
    """Return attention of every slot's query over its block: (S, H, D) and (S, H)."""
    if varlen.supports(query_SHD):
        key, value, runs, _ = _packed(blocks, slots)
        return varlen.attend_runs(query_SHD, key, value, runs)
    tiles = _Tiled(query_SHD.shape, blocks, slots)
    found = attend(tiles.fold(query_SHD), *tiles.keys(), mask=tiles.mask())
    return Attended(tiles.unfold(found.out), tiles.unfold(found.log_sum[..., None])[..., 0])


def attend_slots_backward(
    grad_SHD: Tensor, query_SHD: Tensor, attended: Attended, blocks: Blocks, slots: Slots
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the slots' shares of the gradients: by query (S, H, D), by all keys and values.

    Args:
        grad_SHD: (S, H, D), by the output of the whole softmax.
        query_SHD: (S, H, D).
        attended: Output and log-sum-exp of the whole softmax, by slot.
        blocks: The keys, (Z, K, G, D).
        slots: Of those queries.
    """
    if varlen.supports(query_SHD):
        key, value, runs, kept = _packed(blocks, slots)
        grads = varlen.attend_runs_backward(grad_SHD, query_SHD, key, value, attended, runs)
        return grads[0], _unpacked(grads[1], kept, blocks), _unpacked(grads[2], kept, blocks)
    tiles = _Tiled(query_SHD.shape, blocks, slots)
    log_sum = attended.log_sum.masked_fill(slots.padding[:, None], torch.inf)
    apart = Attended(tiles.fold(attended.out), tiles.fold(log_sum[..., None])[..., 0])
    grads = attend_backward(
        tiles.fold(grad_SHD), tiles.fold(query_SHD), *tiles.keys(), apart, mask=tiles.mask()
    )
    return tiles.unfold(grads[0]), tiles.by_block(grads[1]), tiles.by_block(grads[2])


class _Tiled:
    """Slots as tiles of one head: a group's M heads read the same keys, so they are more rows."""

    def __init__(self, shape: torch.Size, blocks: Blocks, slots: Slots) -> None:
        self._blocks, self._tile_block = blocks, slots.block
        self._groups = blocks.key.shape[2]
        self._rows = (len(slots.block), slots.size, self._groups, shape[1] // self._groups)

    def fold(self, x_SHD: Tensor) -> Tensor:
        """(S, H, D) -> (n·G, 1, R·M, D)."""
        return x_SHD.reshape(*self._rows, -1).transpose(1, 2).flatten(2, 3).flatten(0, 1)[:, None]

    def unfold(self, x: Tensor) -> Tensor:
        """(n·G, 1, R·M, D) -> (S, H, D)."""
        n, size, groups, heads = self._rows
        apart = x.reshape(n, groups, size, heads, x.shape[-1]).transpose(1, 2)
        return apart.reshape(n * size, groups * heads, x.shape[-1])

    def keys(self) -> tuple[Tensor, Tensor]:
        """Return each tile's keys and values, (n·G, 1, K, D)."""
        key, value = (
            x.index_select(0, self._tile_block).transpose(1, 2).flatten(0, 1)[:, None]
            for x in self._blocks[:2]
        )
        return key, value

    def mask(self) -> Tensor | None:
        """Return each tile's mask, (n·G, 1, 1, K)."""
        mask = self._blocks.mask()
        if mask is None:
            return None
        return mask.index_select(0, self._tile_block).repeat_interleave(self._groups, 0)

    def by_block(self, grad: Tensor) -> Tensor:
        """Sum the tiles of each block: (n·G, 1, K, D) -> (Z, K, G, D)."""
        apart = grad.unflatten(0, (-1, self._groups))[:, :, 0].transpose(1, 2)
        return torch.zeros_like(self._blocks.key).index_add_(0, self._tile_block, apart)


def _packed(blocks: Blocks, slots: Slots) -> tuple[Tensor, Tensor, varlen.Runs, Tensor | None]:
    """Return the visible keys and values side by side, the runs, and which keys were kept."""
    num_blocks, size = blocks.key.shape[:2]
    key, value, kept = blocks.key.flatten(0, 1), blocks.value.flatten(0, 1), None
    key_counts = torch.full((num_blocks,), size, device=key.device)
    if blocks.visible is not None:
        kept = blocks.visible.flatten().nonzero()[:, 0]
        key, value = key[kept], value[kept]
        key_counts = blocks.visible.sum(1)
    query_counts = torch.bincount(slots.block, minlength=num_blocks)
    runs = varlen.Runs(
        _bounds(query_counts), _bounds(key_counts), (len(slots.of_query), size), causal=False
    )
    return key, value, runs, kept


def _bounds(counts: Tensor) -> Tensor:
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()


def _unpacked(grad: Tensor, kept: Tensor | None, blocks: Blocks) -> Tensor:
    if kept is None:
        return grad.view_as(blocks.key)
    whole = torch.zeros_like(blocks.key).flatten(0, 1)
    return whole.index_copy_(0, kept, grad).view_as(blocks.key)
