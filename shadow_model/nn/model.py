"""Shadow: frozen 512-bit codes in, a ternary body, 512 features out.

    x = inp(±1 code of each row) -> body -> z = out_proj(rms(x))

The table is frozen and is no part of the state dict; the loop count and sparsity are arguments.
Names of the weights: inp.weight, out_proj.weight, alpha, {pre,core,coda}.{i} or blocks.{i}, each
with .{q,k,v,o,f1,f2,f3,iq,ik}.weight; where there are memories of n-grams engrams.{i}, with
.{key,value,rows}.weight, .conv and .multipliers, and the buffer canonical.

Legend: B batch, T tokens, d width, S query positions.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from shadow_model.errors import ConfigError
from shadow_model.nn import documents
from shadow_model.nn.block import initialise_weights
from shadow_model.nn.body import Body
from shadow_model.nn.carry import Carry, document_starts
from shadow_model.nn.chunk import ChunkView
from shadow_model.nn.config import ModelConfig, num_block_calls
from shadow_model.nn.engram import Engram
from shadow_model.nn.functional import rms, rotary_angles
from shadow_model.nn.index import draw_query_positions
from shadow_model.nn.linear import SharedInput, TernaryLinear, TernaryWeight, refuse_stale
from shadow_model.nn.memory_file import export_memory, load_memory
from shadow_model.nn.memory_rows import LearnedRows
from shadow_model.nn.memory_size import require_weights
from shadow_model.nn.ngrams import boundary_rows
from shadow_model.nn.recall import Recall, ids_tail, look_up
from shadow_model.table.store import BITS, Table

_NUM_PROBED = 8
"""Values of each weight that tell whether it changed."""


class ModelOutput(NamedTuple):
    """What a forward returns.

    Attributes:
        hidden: (B, T, 512) features that the readout compares with rows.
        index_kl: (block calls,) float32 in training where the window has two key blocks, else None.
        carry: State for the next chunk where one was given, else None.
    """

    hidden: Tensor
    index_kl: Tensor | None
    carry: Carry | None = None


class Shadow(Body):
    """The model.

    Args:
        config: Its shape.
        table: The frozen table that its ids name.
        seed: Of the first weights.
        canonical: (R,) int64 of `canonical_map`, for the memories of n-grams; by default each row
            is its own.

    Raises:
        ConfigError: The memories do not fit into the host's memory.
    """

    codes: Tensor
    canonical: Tensor
    boundary: Tensor

    def __init__(
        self,
        config: ModelConfig,
        table: Table,
        seed: int = 0,
        canonical: np.ndarray | None = None,
    ) -> None:
        super().__init__(config)
        require_weights(config)
        form = {"integer": config.integer_products, "quantise": config.quantise}
        self.inp = TernaryLinear(BITS, config.width, **form)
        self.out_proj = TernaryLinear(config.width, BITS, **form)
        codes = torch.from_numpy(table.bits).to(torch.int8).mul_(2).sub_(1)
        self.register_buffer("codes", codes, persistent=False)
        self._separator = table.layout.marks["sep"]
        memories = (Engram(config, i, seed) for i in range(config.num_memories))
        self.engrams = nn.ModuleList(memories)  # last: the body's weights are drawn before
        if config.num_memories:
            self._name_rows(table, canonical)
        initialise_weights(self, seed)
        self.register_load_state_dict_post_hook(lambda module, _: module.refresh())
        self.refresh()

    def forward(
        self,
        ids: Tensor,
        loops: int = 2,
        sparse: bool = False,
        query_positions: Tensor | None = None,
        carry: Carry | None = None,
    ) -> ModelOutput:
        """Compute the features of every position.

        Args:
            ids: (B, T) int64 rows of the table.
            loops: Passes of the core; a flat body ignores it.
            sparse: Whether queries read only their chosen key blocks.
            query_positions: Of the index loss in training, (block calls, S) or (S,) for all calls;
                without it they are those of `draw_query_positions` at seed 0, step 0.
            carry: The state after the rows before these, or `empty_carry`: chunks read one after
                the other give what their whole gives. The index branch then has no loss.

        Returns:
            Features and index losses.

        Raises:
            ConfigError: The loop count is not within 1 and the number of alphas.
            NumericsError: A weight changed after the last `refresh`.
        """
        if not torch.compiler.is_compiling():
            self._check_fresh()
        if carry is not None:
            return self._go_on(ids, loops, sparse, carry)
        positions = self._positions(ids, loops, query_positions)
        x = self.inp(self.codes[ids].to(self.inp.weight.dtype))
        config = self.config
        rotary = rotary_angles(ids.shape[1], config.head_width, config.rope_base, ids.device)
        starts = None
        if config.document_attention:
            starts = documents.document_starts(ids, self._separator)[:, :-1]
        recall = self._recall(ids, starts)
        x, losses = self.run_blocks(x, rotary, loops, sparse, positions, recall, starts)
        return ModelOutput(self.out_proj(rms(x)), losses)

    def _go_on(self, ids: Tensor, loops: int, sparse: bool, carry: Carry) -> ModelOutput:
        config = self.config
        _check_carry(ids, loops, carry)
        starts = document_starts(ids, self._separator, carry)
        confined = starts[:, :-1] if config.document_attention else None
        view = ChunkView.of(carry.position, confined)
        x = self.inp(self.codes[ids].to(self.inp.weight.dtype))
        angles = (config.head_width, config.rope_base, ids.device, carry.position)
        rotary = rotary_angles(ids.shape[1], *angles)
        recall = self._recall(ids, None if confined is None else confined - carry.position, carry)
        x, blocks = self.run_chunk(x, rotary, sparse, view, carry, recall)
        position = carry.position + ids.shape[1]
        after = carry._replace(position=position, document=starts[:, -1], blocks=blocks)
        if self.engrams:
            after = after._replace(ids=ids_tail(ids, carry.ids), memories=recall.tails)
        return ModelOutput(self.out_proj(rms(x)), None, after)

    def refresh(self) -> None:
        """Make the ternary form of every weight; call it after each change of the weights."""
        for module in self.modules():
            if isinstance(module, SharedInput | LearnedRows):
                module.refresh()
        self._probe = self._sample()

    def export_memories(self, folder: Path) -> list[Path]:
        """Write each memory of n-grams as `engram_<i>.safetensors`; see memory_file.py.

        Returns:
            The files.
        """
        paths = [folder / f"engram_{i}.safetensors" for i in range(len(self.engrams))]
        for engram, path in zip(self.engrams, paths, strict=True):
            export_memory(cast(Engram, engram), self.canonical, path)
        return paths

    def load_memories(self, folder: Path) -> None:
        """Read exported memories in place of float rows: the same outputs, and nothing learns.

        Raises:
            CheckpointError: A file cannot be read, or is not of this model's memory.
        """
        for i, engram in enumerate(self.engrams):
            load_memory(cast(Engram, engram), self.canonical, folder / f"engram_{i}.safetensors")

    def _name_rows(self, table: Table, canonical: np.ndarray | None) -> None:
        rows = np.arange(table.num_rows) if canonical is None else canonical
        if rows.shape != (table.num_rows,):
            fix = "Make them of the pieces of this table."
            raise ConfigError("canonical", f"name {table.num_rows} rows", rows.shape, fix)
        self.register_buffer("canonical", torch.from_numpy(rows.astype(np.int64)))
        self.register_buffer("boundary", boundary_rows(table.layout), persistent=False)

    def _recall(self, ids: Tensor, starts: Tensor | None, carry: Carry | None = None) -> Recall:
        places, engrams = self.config.engram_places, self.engrams
        if not engrams:
            return Recall(places, engrams)
        tail = None if carry is None or carry.ids is None else self.canonical[carry.ids]
        slots = look_up(engrams, self.canonical[ids], self.boundary, tail)
        return Recall(places, engrams, slots, starts, carry.memories if carry else ())

    def use_int8(self, use: bool = True) -> None:
        """Multiply in int8 where nothing learns, if this processor can: the same bits, sooner."""
        for module in self.modules():
            if isinstance(module, SharedInput):
                module.use_int8(use)

    def _check_fresh(self) -> None:
        # fused optimisers do not count their changes, so a few values are compared; on a device
        # that waits for the answer, so only where no step is being timed: under no_grad
        reads = self.config.quantise and (self.codes.is_cpu or not torch.is_grad_enabled())
        if reads and not _same_bits(self._sample(), self._probe):
            refuse_stale()

    @torch.no_grad()
    def _sample(self) -> Tensor:
        weights = [m.weight for m in self.modules() if isinstance(m, TernaryWeight)]
        return torch.cat([w.flatten()[:_NUM_PROBED] for w in weights])

    def _positions(self, ids: Tensor, loops: int, given: Tensor | None) -> Tensor | None:
        config, tokens = self.config, ids.shape[1]
        calls = num_block_calls(config, loops)
        if not self.training or tokens < 2 * config.index_block:
            return None
        if given is None:
            block, num = config.index_block, config.num_query_positions
            given = draw_query_positions(0, 0, calls, tokens, block, num).to(ids.device)
        if given.dim() == 2 and len(given) != calls:
            must, fix = f"have a row for each of {calls} block calls", "Draw them for this depth."
            raise ConfigError("query_positions", must, tuple(given.shape), fix)
        return given.expand(calls, -1)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.refresh()  # a copy's weights count their changes anew

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self.refresh()
        return self


def _check_carry(ids: Tensor, loops: int, carry: Carry) -> None:
    if loops != carry.loops or len(ids) != len(carry.document):
        must = f"be of {loops} loops and {len(ids)} rows of a batch"
        found = f"{carry.loops} loops, {len(carry.document)} rows"
        raise ConfigError("carry", must, found, "Begin anew with empty_carry.")


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """Tell whether two tensors agree bit for bit: a NaN is not stale, only wrong."""
    return a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def body_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the named parameters of the ternary body: all but those of a memory."""
    return {n: p for n, p in model.named_parameters() if not n.startswith("engrams.")}


def num_body_parameters(model: nn.Module) -> int:
    """Return how many numbers the body learns."""
    return sum(p.numel() for p in body_parameters(model).values())
