"""Canonical ids: rows whose text differs only in case, accents, form or white space share one.

A memory of n-grams that looks at canonical ids finds "The", " the" and "THE" in one place.

Source: Engram (arXiv 2601.07372), tokenizer compression; its program normalises in this order.
"""

import re
import unicodedata
from collections.abc import Iterable

import numpy as np

from shadow_model.table.layout import Layout
from shadow_model.table.vocabulary import Vocabulary

_SPACE = re.compile(r"\s+")
_UNDECODABLE = "\ufffd"


def canonical_text(text: str) -> str:
    """Return a text in NFKC, then NFD without accents, lower case, white space collapsed.

    White space at the ends goes, unless there is nothing else: that becomes one space.
    """
    decomposed = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    bare = "".join(sign for sign in decomposed if not unicodedata.combining(sign))
    collapsed = _SPACE.sub(" ", bare.lower())
    return collapsed.strip() or collapsed


def canonical_map(pieces: Iterable[str], num_rows: int | None = None) -> np.ndarray:
    """Return the canonical id of every row.

    Args:
        pieces: Text of each language row, in row order. One that spells nothing, or no whole
            character ("" or U+FFFD in it), keeps its own id.
        num_rows: Rows of the table (R); those after the language rows are unique. By default there
            are none.

    Returns:
        (R,) int64: the first row of the same canonical text.
    """
    first: dict[str, int] = {}
    ids = [_first_row(first, text, row) for row, text in enumerate(pieces)]
    rows = len(ids) if num_rows is None else num_rows
    return np.concatenate([np.array(ids, np.int64), np.arange(len(ids), rows, dtype=np.int64)])


def canonical_of_table(
    layout: Layout, lang_old_ids: np.ndarray, pieces: Vocabulary | None
) -> np.ndarray:
    """Return (R,) int64, the canonical ids of a table's rows; each its own without pieces.

    Args:
        layout: Of the table.
        lang_old_ids: (num_lang,) int64, the piece of each language row.
        pieces: The vocabulary, where it is known.
    """
    if pieces is None:
        return np.arange(layout.num_rows, dtype=np.int64)
    return canonical_map((pieces.piece_text(int(i)) for i in lang_old_ids), layout.num_rows)


def _first_row(first: dict[str, int], text: str, row: int) -> int:
    canonical = "" if _UNDECODABLE in text else canonical_text(text)
    return first.setdefault(canonical, row) if canonical else row
