"""What the table stage asks of a tokenizer, so that this layer need not know how it is made."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np


class Vocabulary(Protocol):
    """Text pieces; ids are 0 to size - 1."""

    byte_ids: np.ndarray
    """(256,) the piece of each byte, or (0,) where the tokenizer has them not all."""

    @property
    def size(self) -> int:
        """Number of pieces."""
        ...

    def encode_many(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the pieces of each text."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of pieces."""
        ...

    def piece_text(self, piece: int) -> str:
        """Return what a piece spells, with real spaces; "" where it spells nothing."""
        ...

    def byte_expansion(self, piece: int) -> list[int]:
        """Return the byte pieces that spell a piece; [] where that is impossible."""
        ...
