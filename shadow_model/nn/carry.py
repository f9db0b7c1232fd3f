"""The carried state of a context read chunk by chunk: what the next chunk needs of all before it.

Every executed block keeps its own keys and values (a tied core run K times keeps K sets), as the
forward quantised them: whole numbers of few bits and a scale a head vector, two to a byte where
four bits do. Reading them back gives the forward's values bit for bit. They carry no gradient;
without quantisation the values themselves are kept, with theirs.

A carry is never changed: a chunk returns a new one, so one beginning can be continued many ways.

Legend: B batch, T tokens so far, G key/value heads, D head width, I index width.

Source: segment-level recurrence (Transformer-XL, arXiv 1901.02860, section 3.2).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from shadow_model.nn import documents
from shadow_model.nn.quant import KeyValueLevels, from_levels

_NIBBLE_LEVELS = 7
_LOW = 0x0F
_OFFSET = 8
"""Nibbles hold -7..7 as 1..15."""


class Vectors(NamedTuple):
    """Head vectors as they are kept.

    Attributes:
        content: (B, T, G, D / 2) uint8, two levels a byte; (B, T, G, D) int8, one level a byte; or
            (B, T, G, D) floating where nothing is quantised.
        scale: (B, T, G, 1) floating; None where nothing is quantised.
        levels: Largest level of the quantiser; 0 where nothing is quantised.
    """

    content: Tensor
    scale: Tensor | None
    levels: int

    @classmethod
    def of(cls, kept: KeyValueLevels) -> "Vectors":
        """Keep quantised head vectors."""
        codes = kept.codes.to(torch.int8)
        if kept.levels <= _NIBBLE_LEVELS:
            first, second = codes.add(_OFFSET).to(torch.uint8).chunk(2, -1)
            codes = first | second << 4
        return cls(codes, kept.scale, kept.levels)

    @property
    def tokens(self) -> int:
        """Tokens kept (T)."""
        return self.content.shape[1]

    def values(self, like: Tensor) -> Tensor:
        """Return (B, T, G, D) in the dtype of `like`, as the forward computed them."""
        if self.scale is None:
            return self.content.to(like.dtype)
        codes = self.content
        if codes.dtype == torch.uint8:
            codes = torch.cat([codes & _LOW, codes >> 4], -1).to(torch.int8) - _OFFSET
        wide = codes.to(self.scale.dtype)
        return from_levels(KeyValueLevels(wide, self.scale, self.levels)).to(like.dtype)

    def joined(self, more: "Vectors") -> "Vectors":
        """Return these and then more."""
        content = torch.cat([self.content, more.content], 1)
        if self.scale is None or more.scale is None:
            return self._replace(content=content)
        return self._replace(content=content, scale=torch.cat([self.scale, more.scale], 1))


class BlockCarry(NamedTuple):
    """What one executed block keeps.

    Attributes:
        key: Rotated and quantised keys.
        value: Quantised values.
        index_key: (B, T, I) floating, keys of the index branch, detached.
    """

    key: Vectors
    value: Vectors
    index_key: Tensor

    def joined(self, more: "BlockCarry") -> "BlockCarry":
        """Return these tokens and then more."""
        key, value = self.key.joined(more.key), self.value.joined(more.value)
        return BlockCarry(key, value, torch.cat([self.index_key, more.index_key], 1))


class Carry(NamedTuple):
    """What a model keeps between chunks; an empty one begins a context.

    Attributes:
        loops: Passes of the core that it belongs to.
        position: Tokens read so far (T): the position of the next one.
        document: (B,) int64, position at which the document under way began.
        blocks: One for each executed block, in order; () before the first chunk.
        ids: (B, few) int64, the last rows read: the tail of n-grams.
        memories: One for each memory of n-grams, (B, up to 9, d): the tail of its convolution.
    """

    loops: int
    position: int
    document: Tensor
    blocks: tuple[BlockCarry, ...] = ()
    ids: Tensor | None = None
    memories: tuple[Tensor, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(t.numel() * t.element_size() for t in self.tensors())

    def tensors(self) -> list[Tensor]:
        """Return every tensor kept."""
        found = [self.document, *self.memories]
        for block in self.blocks:
            for part in (block.key, block.value):
                found += [t for t in (part.content, part.scale) if t is not None]
            found.append(block.index_key)
        return found if self.ids is None else [*found, self.ids]


def empty_carry(batch: int, loops: int, device: torch.device | None = None) -> Carry:
    """Return the carry that begins a context."""
    return Carry(loops, 0, torch.zeros(batch, dtype=torch.int64, device=device))


def document_starts(ids_BS: Tensor, separator: int, carry: Carry) -> Tensor:
    """Return where the document of each row of a chunk began; a separator ends its own document.

    Args:
        ids_BS: (B, S) int64 rows of the chunk.
        separator: The row that ends a document.
        carry: Of the rows before.

    Returns:
        (B, S + 1) int64 positions in the whole context; the last is that of the row to follow.
    """
    return documents.document_starts(ids_BS, separator, carry.position, carry.document)
