"""What a table is made from, as the data layer hands it over."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from shadow_model.table.vocabulary import Vocabulary


@dataclass(frozen=True)
class TableInputs:
    """Counts and texts of the training shards, and what their ids mean.

    Attributes:
        counts: (ids,) int64, how often each old id occurs in the training shards.
        vocab: Number of text pieces; None where nobody states it: all ids are text pieces then.
        bands: Band -> (first old id, number of codes).
        marks: Marker -> old id.
        controls: Control -> old id.
        pieces: The tokenizer of the text pieces, where it is known.
        texts: Gives the documents' text, from the beginning at each call.
        codebooks: Band -> (codes, dimensions) float32, where it is known.
    """

    counts: np.ndarray
    vocab: int | None
    texts: Callable[[], Iterable[str]]
    bands: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)
    controls: Mapping[str, int] = field(default_factory=dict)
    pieces: Vocabulary | None = None
    codebooks: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def byte_ids(self) -> np.ndarray:
        """Pieces of single bytes; (0,) where there is no tokenizer or it has them not all."""
        if self.pieces is None:
            return np.empty(0, np.int64)
        return np.asarray(self.pieces.byte_ids, np.int64)

    def count(self, first: int, number: int = 1) -> np.ndarray:
        """Return (number,) int64, the counts of old ids from `first`; zero beyond those seen."""
        part = self.counts[first : first + number].astype(np.int64)
        return np.pad(part, (0, number - len(part)))
