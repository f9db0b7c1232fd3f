"""One forward's way to the memories: slots looked up once, then read at each place.

Legend: B batch, T tokens, H heads, M memories, d width.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from shadow_model.nn.config import MemoryPlace
from shadow_model.nn.engram import Engram
from shadow_model.nn.ngrams import TAIL_TOKENS, hash_slots, ngram_context


class Recall:
    """Reads the memory of a place, where the model has one there.

    Args:
        places: Of the memories, in their order.
        engrams: The memories.
        slots: (M, B, T, H) int64; None where there are no memories.
        starts: (B, T) int64, where documents begin, for the convolutions; None: across documents.
        tails: Of the chunk before; () at the beginning.
    """

    def __init__(
        self,
        places: Sequence[MemoryPlace],
        engrams: nn.ModuleList,
        slots: Tensor | None = None,
        starts: Tensor | None = None,
        tails: Sequence[Tensor] = (),
    ) -> None:
        self._places, self._engrams, self._slots, self._starts = places, engrams, slots, starts
        self._before = tuple(tails) or (None,) * len(engrams)
        self._after: dict[int, Tensor] = {}

    def __call__(self, place: MemoryPlace, x: Tensor) -> Tensor:
        """Return (B, T, d) residual with the memory of a place added; x itself where none is."""
        if self._slots is None or place not in self._places:
            return x
        number = self._places.index(place)
        engram = cast(Engram, self._engrams[number])
        recalled = engram.recall(x, self._slots[number], self._starts, self._before[number])
        self._after[number] = recalled.tail
        return recalled.x

    @property
    def tails(self) -> tuple[Tensor, ...]:
        """What the next chunk needs of each memory's convolution, (B, up to 9, d) each."""
        return tuple(self._after[number] for number in sorted(self._after))


NO_RECALL = Recall((), nn.ModuleList())
"""For a body without memories."""


def look_up(
    engrams: nn.ModuleList, canon_BT: Tensor, boundary: Tensor, tail: Tensor | None = None
) -> Tensor | None:
    """Return the slots of a batch in all memories, at once.

    Args:
        engrams: The memories.
        canon_BT: (B, T) int64 canonical ids.
        boundary: (R,) bool, canonical ids that begin n-grams anew.
        tail: (B, up to 2) int64, the canonical ids before; None at the beginning.

    Returns:
        (M, B, T, H) int64, or None where there are no memories.
    """
    if not len(engrams):
        return None
    parts = [cast(Engram, engram) for engram in engrams]
    multipliers = torch.stack([part.multipliers for part in parts])
    primes = torch.stack([part.primes for part in parts])
    return hash_slots(ngram_context(canon_BT, boundary, tail), multipliers, primes)


def ids_tail(ids_BT: Tensor, before: Tensor | None) -> Tensor:
    """Return (B, up to 2) int64, the last rows read, for the chunk that follows."""
    ids = ids_BT if before is None else torch.cat([before, ids_BT], 1)
    return ids[:, -TAIL_TOKENS:]
