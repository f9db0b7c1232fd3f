"""Documents as old ids: text, and pairs of a caption with a picture, sound or clip.

A pair is written in both orders, each a document of its own:
    [start mark] codes [end control] caption sep       to understand
    caption [generate control] codes [end_gen] sep     to generate
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from shadow_model.data.id_layout import IdLayout
from shadow_model.data.media import MediaKind
from shadow_model.errors import DataError
from shadow_model.table.layout import BANDS, GENERATE_END, KINDS, Kind

BAND_OF_KIND: Mapping[Kind, str] = dict(zip(KINDS[1:], BANDS, strict=True))


class SpanIds(NamedTuple):
    """The old ids that frame one kind's codes."""

    first_code: int
    num_codes: int
    start: int
    end: int
    generate: int
    generate_end: int

    @classmethod
    def of(cls, layout: IdLayout, kind: MediaKind, where: object) -> "SpanIds":
        """Look up the ids of a kind; DataError naming `where` if the layout has them not all."""
        band = BAND_OF_KIND[kind]
        names = [f"[/{band}]", f"[gen_{band}]", GENERATE_END]
        missing = [name for name in names if name not in layout.controls]
        missing += [name for name in (band, "sep") if name not in layout.marks]
        if missing or band not in layout.bands:
            found = f"none of {missing}" if missing else f"the bands {[*layout.bands]}"
            fix = "Add them to layout.json, or leave these inputs out."
            raise DataError(where, f"place what a {kind} needs", found, fix)
        ids = [layout.controls[name] for name in names]
        return cls(*layout.bands[band], layout.marks[band], *ids)


def understand(ids: SpanIds, codes: np.ndarray, caption: np.ndarray) -> np.ndarray:
    """Return the document, without its sep, that names what is seen or heard: (N,) int64."""
    return _concat([ids.start], codes + ids.first_code, [ids.end], caption)


def generate(ids: SpanIds, codes: np.ndarray, caption: np.ndarray) -> np.ndarray:
    """Return the document, without its sep, that makes what was named: (N,) int64."""
    return _concat(caption, [ids.generate], codes + ids.first_code, [ids.generate_end])


def separated(documents: list[np.ndarray], sep: int) -> np.ndarray:
    """Return all documents as one stream, each followed by the sep mark: (N,) int64."""
    end = np.array([sep])
    return _concat(*[part for document in documents for part in (document, end)])


def count_kinds(ids: np.ndarray, layout: IdLayout | None) -> dict[Kind, int]:
    """Return how many ids are of each kind; marks and controls count as text."""
    counts: dict[Kind, int] = dict.fromkeys(KINDS, 0)
    for kind, band in BAND_OF_KIND.items():
        if layout is not None and band in layout.bands:
            first, number = layout.bands[band]
            counts[kind] = int(np.count_nonzero((ids >= first) & (ids < first + number)))
    counts["text"] = len(ids) - sum(counts.values())
    return counts


def _concat(*parts: np.ndarray | list[int]) -> np.ndarray:
    return np.concatenate([np.asarray(part, np.int64) for part in parts])
