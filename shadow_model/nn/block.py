"""One post-norm block: attention and a gated feed-forward, every matrix ternary.

    h = rms(x)                      q, k, v = Wq h, Wk h, Wv h; rotate q, k; quantise k, v
    x = rms(x + Wo attention(q, k, v))
    h = rms(x)                      x = rms(x + W2 (silu(W1 h) · W3 h))

The index branch reads the same h, detached: it learns from its own loss alone, and that loss
teaches nothing else.

Legend: B batch, T tokens, d width, H heads, G key/value heads, D head width.

Source: SwiGLU (arXiv 2002.05202); MiniMax Sparse Attention (arXiv 2606.13392) for the index branch.
"""

import torch
from torch import Tensor, nn

from shadow_model.nn.attention import dense_attention, sparse_attention
from shadow_model.nn.carry import BlockCarry, Vectors
from shadow_model.nn.chunk import ChunkView, IndexBranch, chunk_attention
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.functional import Rotary, gated_silu, rms, rotate
from shadow_model.nn.index import index_kl, select_blocks
from shadow_model.nn.linear import SharedInput, TernaryLinear, TernaryWeight
from shadow_model.nn.quant import key_value, key_value_levels, on_levels

_ALIGNMENT = 8
"""Matrix products want widths that are multiples of this; the feed-forward's is odd."""


class Block(nn.Module):
    """One block of the body."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width, key_width = config.width, config.kv_heads * config.head_width
        form = {"integer": config.integer_products, "quantise": config.quantise}
        self.q = TernaryWeight(width, width)
        self.k = TernaryWeight(width, key_width)
        self.v = TernaryWeight(width, key_width)
        self.o = TernaryLinear(width, width, **form)
        self.f1 = TernaryWeight(width, config.ff_width)
        self.f2 = TernaryLinear(config.ff_width, width, pad_in=_ALIGNMENT, **form)
        self.f3 = TernaryWeight(width, config.ff_width)
        self.iq = TernaryWeight(width, config.index_width)
        self.ik = TernaryWeight(width, config.index_width)
        self.attention_in = SharedInput(
            (self.q, self.k, self.v, self.iq, self.ik), detached=2, **form
        )
        self.gate_in = SharedInput((self.f1, self.f3), pad=_ALIGNMENT, **form)

    def forward(
        self,
        x: Tensor,
        rotary: Rotary,
        sparse: bool,
        positions: Tensor | None,
        first: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Run the block.

        Args:
            x: (B, T, d).
            rotary: Angles of the T positions.
            sparse: Whether queries read only their chosen key blocks.
            positions: (S,) query positions of the index loss; None leaves the loss out.
            first: (B, T) int64, the place of the first token of each position's document; None:
                the window is one document.

        Returns:
            (B, T, d), and the 0-d float32 index loss or None.
        """
        attended, loss = self._attend(rms(x), rotary, sparse, positions, first)
        x = rms(x + self.o(attended))
        x = rms(x + self.f2(gated_silu(self.gate_in(rms(x)))))
        return x, loss

    def _attend(
        self,
        h: Tensor,
        rotary: Rotary,
        sparse: bool,
        positions: Tensor | None,
        first: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        config = self.config
        block, top = config.index_block, config.index_top
        selects = sparse and -(-h.shape[1] // block) > top + 1
        uses_index = selects or positions is not None
        parts = self.attention_in(h, attached_only=not uses_index).split(
            self.attention_in.sizes[: 5 if uses_index else 3], -1
        )
        query = rotate(self._heads(parts[0]), rotary)
        key = self._quantised(rotate(self._heads(parts[1]), rotary))
        value = self._quantised(self._heads(parts[2]))
        chosen = select_blocks(parts[3], parts[4], block, top, first) if selects else None
        loss = None
        if positions is not None:
            read = chosen if config.index_teacher == "selected" else None
            loss = index_kl(parts[3], parts[4], query, key, positions, block, read, first)
        if chosen is None:
            return dense_attention(query, key, value, first), loss
        return sparse_attention(query, key, value, chosen, block, top, first), loss

    def extend(
        self, x: Tensor, rotary: Rotary, sparse: bool, view: ChunkView, past: BlockCarry | None
    ) -> tuple[Tensor, BlockCarry]:
        """Run the block on a chunk that goes on where `past` ends.

        Args:
            x: (B, S, d).
            rotary: Angles of the chunk's positions.
            sparse: Whether queries read only their chosen key blocks.
            view: Where the chunk stands.
            past: What this block kept of the rows before; None: there were none.

        Returns:
            (B, S, d), and what the block keeps of all rows; past keys pass no gradient on.
        """
        config = self.config
        parts = self.attention_in(rms(x)).split(self.attention_in.sizes, -1)
        key, kept_key = self._kept(rotate(self._heads(parts[1]), rotary))
        value, kept_value = self._kept(self._heads(parts[2]))
        index_key, kept = parts[4], BlockCarry(kept_key, kept_value, parts[4].detach())
        if past is not None:
            key = torch.cat([past.key.values(key), key], 1)
            value = torch.cat([past.value.values(value), value], 1)
            index_key = torch.cat([past.index_key, index_key], 1)
            kept = past.joined(kept)
        selects = sparse and -(-key.shape[1] // config.index_block) > config.index_top + 1
        branch = IndexBranch(parts[3], index_key, config.index_block, config.index_top)
        query = rotate(self._heads(parts[0]), rotary)
        attended = chunk_attention(query, key, value, view, branch if selects else None)
        x = rms(x + self.o(attended))
        return rms(x + self.f2(gated_silu(self.gate_in(rms(x))))), kept

    def _kept(self, x: Tensor) -> tuple[Tensor, Vectors]:
        """Return head vectors as attention reads them, and as a carry keeps them."""
        if not self.config.quantise:
            return x, Vectors(x, None, 0)
        levels = key_value_levels(x, self.config.kv_bits, self.config.integer_products)
        return on_levels(x, levels), Vectors.of(levels)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], -1, self.config.head_width)

    def _quantised(self, x: Tensor) -> Tensor:
        if not self.config.quantise:
            return x
        return key_value(x, self.config.kv_bits, self.config.integer_products)


def initialise_weights(module: nn.Module, seed: int) -> None:
    """Draw every ternary weight of a module, in the order of its names, from one seed."""
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, TernaryWeight):
            part.initialise(generator)
