"""Canonical ids: what falls together, and what keeps its own."""

import numpy as np
import pytest

from shadow_model.table.canonical import canonical_map, canonical_of_table, canonical_text
from shadow_model.table.layout import Layout


class _Pieces:
    """A vocabulary of four pieces."""

    byte_ids = np.empty(0, np.int64)
    size = 4
    _texts = ("b", " The", "the", "\ufffd")

    def piece_text(self, piece: int) -> str:
        return self._texts[piece]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (" The", "the"),
        ("ÉCOLE", "ecole"),
        ("e\u0301", "e"),
        ("ﬁn", "fin"),  # a ligature: NFKC
        ("２", "2"),
        ("a \t\n b", "a b"),
        ("\n\n", " "),
        ("", ""),
    ],
)
def test_text_is_normalised(text: str, canonical: str) -> None:
    assert canonical_text(text) == canonical


def test_equal_texts_share_the_first_row_and_others_are_unique() -> None:
    pieces = ["The", " the", "x", "\n", "  ", "THÉ", "\ufffd", "\ufffd", "", ""]
    found = canonical_map(pieces, 13)
    assert found.dtype == np.int64
    assert found.tolist() == [0, 0, 2, 3, 3, 0, 6, 7, 8, 9, 10, 11, 12]


def test_an_accent_alone_keeps_its_identity() -> None:
    assert canonical_map(["\u0301", "\u0300"]).tolist() == [0, 1]


def test_a_table_names_its_pieces_by_old_ids() -> None:
    layout = Layout(num_lang=3)
    old_ids = np.array([1, 2, 3])
    found = canonical_of_table(layout, old_ids, _Pieces())  # type: ignore[arg-type]
    assert found[:3].tolist() == [0, 0, 2]
    assert found[3:].tolist() == list(range(3, layout.num_rows))
    alone = canonical_of_table(layout, old_ids, None)
    assert alone.tolist() == list(range(layout.num_rows))
