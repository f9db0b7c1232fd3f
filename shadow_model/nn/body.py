"""The body: which blocks run in which order, and the boundary between passes of the loop.

    looped   prelude -> e = x -> loops times { core; x = rms(x) + alpha_k · e } -> coda
    flat     untied blocks, no e, no boundary; the loop count is ignored

One pass is a flat body with the boundary operator: as many untied blocks as it has, and an e.

`executed_calls` writes the order down as data; the body only follows it. Memories of n-grams are
read after the prelude (of a flat body: after as many blocks) and after the last block.

Legend: B batch, T tokens, d width.

Source: looped core with re-injected input (arXiv 2502.05171, section 3); growth of the loop
(arXiv 2609.19107).
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from shadow_model.nn.block import Block
from shadow_model.nn.carry import BlockCarry, Carry
from shadow_model.nn.chunk import ChunkView
from shadow_model.nn.config import ModelConfig, check_loops
from shadow_model.nn.functional import Rotary, rms
from shadow_model.nn.recall import NO_RECALL, Recall


class BlockCall(NamedTuple):
    """One executed block.

    Attributes:
        group: "pre", "core", "coda" or "blocks".
        place: Which block of the group.
        opens_loop: Whether e is taken before this call.
        boundary: Which alpha's boundary follows the call, if any.
        recalls: Whether the memory "pre" is read before this call.
    """

    group: str
    place: int
    opens_loop: bool = False
    boundary: int | None = None
    recalls: bool = False


def executed_calls(config: ModelConfig, loops: int) -> tuple[BlockCall, ...]:
    """Return the executed blocks in order.

    Raises:
        ConfigError: The loop count is not within 1 and the number of alphas.
    """
    check_loops(config, loops)
    if config.flat:
        at = config.prelude
        return tuple(BlockCall("blocks", i, recalls=i == at) for i in range(config.flat))
    calls = [BlockCall("pre", i) for i in range(config.prelude)]
    last, alphas = config.core - 1, boundary_alphas(config, loops)
    for k, alpha in enumerate(alphas):
        calls += [
            BlockCall("core", i, k == i == 0, alpha if i == last else None, k == i == 0)
            for i in range(config.core)
        ]
    return (*calls, *(BlockCall("coda", i) for i in range(config.coda)))


def boundary_alphas(config: ModelConfig, loops: int) -> tuple[int, ...]:
    """Return which alpha each pass's boundary takes; none for a flat body.

    Raises:
        ConfigError: The loop count is not within 1 and the number of alphas.
    """
    check_loops(config, loops)
    if config.flat:
        return ()
    last = config.num_alphas - 1 if config.coda_alpha else loops - 1
    return (*range(loops - 1), last)


class Body(nn.Module):
    """The blocks and the alphas; a subclass adds the way in and the way out."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        for group, size in _group_sizes(config).items():
            setattr(self, group, nn.ModuleList(Block(config) for _ in range(size)))
        if not config.flat:
            self.alpha = nn.Parameter(torch.full((config.num_alphas,), config.alpha_init))

    def run_blocks(
        self,
        x: Tensor,
        rotary: Rotary,
        loops: int,
        sparse: bool,
        positions: Tensor | None,
        recall: Recall = NO_RECALL,
        first: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Run the executed blocks.

        Args:
            x: (B, T, d).
            rotary: Angles of the T positions.
            loops: Passes of the core.
            sparse: Whether queries read only their chosen key blocks.
            positions: (block calls, S) query positions of the index loss, or None.
            recall: Reads the memories.
            first: (B, T) int64, the place of the first token of each position's document, or None.

        Returns:
            (B, T, d), and the index losses (block calls,) float32 or None.
        """
        losses, entry = [], x
        for number, call in enumerate(executed_calls(self.config, loops)):
            if call.recalls:
                x = recall("pre", x)
            if call.opens_loop:
                entry = x
            block = getattr(self, call.group)[call.place]
            drawn = None if positions is None else positions[number]
            x, loss = block(x, rotary, sparse, drawn, first)
            if loss is not None:
                losses.append(loss)
            if call.boundary is not None:
                x = rms(x) + self.alpha[call.boundary] * entry
        return recall("post", x), torch.stack(losses) if losses else None

    def run_chunk(
        self,
        x: Tensor,
        rotary: Rotary,
        sparse: bool,
        view: ChunkView,
        carry: Carry,
        recall: Recall = NO_RECALL,
    ) -> tuple[Tensor, tuple[BlockCarry, ...]]:
        """Run the executed blocks on a chunk of a context.

        Args:
            x: (B, S, d).
            rotary: Angles of the chunk's positions.
            sparse: Whether queries read only their chosen key blocks.
            view: Where the chunk stands.
            carry: Of the rows before; its loop count is that of the run.
            recall: Reads the memories.

        Returns:
            (B, S, d), and what each executed block keeps.
        """
        kept, entry = [], x
        calls = executed_calls(self.config, carry.loops)
        for call, past in zip(calls, carry.blocks or (None,) * len(calls), strict=True):
            if call.recalls:
                x = recall("pre", x)
            if call.opens_loop:
                entry = x
            block = getattr(self, call.group)[call.place]
            x, of_block = block.extend(x, rotary, sparse, view, past)
            kept.append(of_block)
            if call.boundary is not None:
                x = rms(x) + self.alpha[call.boundary] * entry
        return recall("post", x), tuple(kept)

    @torch.no_grad()
    def grow(self, from_loops: int, to_loops: int) -> None:
        """Let each added boundary start with the alpha of the pass it repeats.

        With an alpha of its own before the coda that one stays, and the boundaries between passes
        repeat those there were (from one pass, which has none, the coda's).

        Raises:
            ConfigError: A loop count is not within 1 and the number of alphas.
        """
        before = boundary_alphas(self.config, from_loops)
        after = boundary_alphas(self.config, to_loops)
        repeated = before[:-1] or before if self.config.coda_alpha else before
        for number, alpha in enumerate(after):
            if alpha not in before:
                self.alpha[alpha] = self.alpha[repeated[number % len(repeated)]]


def _group_sizes(config: ModelConfig) -> dict[str, int]:
    if config.flat:
        return {"blocks": config.flat}
    return {"pre": config.prelude, "core": config.core, "coda": config.coda}
