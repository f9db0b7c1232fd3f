"""The body: which blocks run in which order, and the boundary between passes of the loop.

    looped   prelude -> e = x -> loops times { core; x = rms(x) + alpha_k · e } -> coda
    flat     untied blocks, no e, no boundary; the loop count is ignored

`executed_calls` writes the order down as data; the body only follows it. A memory added at one
place (after the prelude, at the end) is one more mark on a call.

Legend: B batch, T tokens, d width.

Source: looped core with re-injected input (arXiv 2502.05171, section 3); growth of the loop
(arXiv 2609.19107).
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from shadow_model.nn.block import Block
from shadow_model.nn.config import ModelConfig, check_loops
from shadow_model.nn.functional import Rotary, rms


class BlockCall(NamedTuple):
    """One executed block.

    Attributes:
        group: "pre", "core", "coda" or "blocks".
        place: Which block of the group.
        opens_loop: Whether e is taken before this call.
        boundary: Which alpha's boundary follows the call, if any.
    """

    group: str
    place: int
    opens_loop: bool = False
    boundary: int | None = None


def executed_calls(config: ModelConfig, loops: int) -> tuple[BlockCall, ...]:
    """Return the executed blocks in order.

    Raises:
        ConfigError: The loop count is not within 1 and the number of alphas.
    """
    check_loops(config, loops)
    if config.flat:
        return tuple(BlockCall("blocks", i) for i in range(config.flat))
    calls = [BlockCall("pre", i) for i in range(config.prelude)]
    last = config.core - 1
    for k in range(loops):
        calls += [
            BlockCall("core", i, k == i == 0, k if i == last else None) for i in range(config.core)
        ]
    return (*calls, *(BlockCall("coda", i) for i in range(config.coda)))


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
    ) -> tuple[Tensor, Tensor | None]:
        """Run the executed blocks.

        Args:
            x: (B, T, d).
            rotary: Angles of the T positions.
            loops: Passes of the core.
            sparse: Whether queries read only their chosen key blocks.
            positions: (block calls, S) query positions of the index loss, or None.

        Returns:
            (B, T, d), and the index losses (block calls,) float32 or None.
        """
        losses, entry = [], x
        for number, call in enumerate(executed_calls(self.config, loops)):
            if call.opens_loop:
                entry = x
            block = getattr(self, call.group)[call.place]
            x, loss = block(x, rotary, sparse, None if positions is None else positions[number])
            if loss is not None:
                losses.append(loss)
            if call.boundary is not None:
                x = rms(x) + self.alpha[call.boundary] * entry
        return x, torch.stack(losses) if losses else None

    @torch.no_grad()
    def grow(self, from_loops: int, to_loops: int) -> None:
        """Let each added pass start with the alpha of the pass it repeats.

        Raises:
            ConfigError: A loop count is not within 1 and the number of alphas.
        """
        check_loops(self.config, from_loops)
        check_loops(self.config, to_loops)
        if not self.config.flat:
            for k in range(from_loops, to_loops):
                self.alpha[k] = self.alpha[k % from_loops]


def _group_sizes(config: ModelConfig) -> dict[str, int]:
    if config.flat:
        return {"blocks": config.flat}
    return {"pre": config.prelude, "core": config.core, "coda": config.coda}
