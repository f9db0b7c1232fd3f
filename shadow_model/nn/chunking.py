"""What a model takes and gives when a row is worked through chunk by chunk.

Legend: B rows, T tokens of a chunk.
"""

from typing import Any, NamedTuple, Protocol

from torch import Tensor


class Term(NamedTuple):
    """A loss as a sum and what it is divided by, so that chunks add up to the row's mean.

    Attributes:
        total: () sum of the weighted values.
        weight: () sum of the weights, detached; 0: no value yet.
    """

    total: Tensor
    weight: Tensor


class ChunkIn(NamedTuple):
    """One chunk of rows.

    Attributes:
        ids: (B, T) int64.
        targets: (B, T) int64, the id after each, or None: no loss over targets.
        valid: (B, T) bool, false for padding: changes nothing, and reads as nothing.
        write: (B, T) bool, false for tokens that read states and leave none.
        reset: (B, T) bool, true at the first token of a document: nothing before it is read.
    """

    ids: Tensor
    targets: Tensor | None
    valid: Tensor
    write: Tensor
    reset: Tensor


class ChunkOut(NamedTuple):
    """What a chunk gives.

    Attributes:
        out: (B, T, D) features.
        carry: Tree of tensors that the next chunk starts from; batch first, size free of T.
        terms: Name -> loss of this chunk.
        stats: Name -> detached figures.
    """

    out: Tensor
    carry: Any
    terms: dict[str, Term]
    stats: dict[str, Any]


class ChunkModel(Protocol):
    """A model that can be worked through in chunks; a pure function of its arguments."""

    def chunk(self, x: ChunkIn, carry: Any = None) -> ChunkOut:
        """Work through one chunk; `carry` None is a fresh start, equal to zeros."""
