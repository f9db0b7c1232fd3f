from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shadow_model.data.id_layout import IdLayout
from shadow_model.data.lookup import MISSING, Lookup, lookup
from shadow_model.data.text import Pieces
from shadow_model.errors import LayoutError
from shadow_model.table.layout import BANDS, REQUIRED_CONTROLS, Layout
from shadow_model.table.store import BITS, Table

VOCAB, KEPT = 40, 12
"""Text pieces of the old ids; the first KEPT have rows and spell the others."""


class Spelling:
    """Pieces that spell id n by n % 3 of the kept ones; enough of `Pieces` for a look-up."""

    size = VOCAB

    def byte_expansion(self, piece: int) -> list[int]:
        return [(piece + i) % KEPT for i in range(piece % 3)]


def make_table(kept: Sequence[int], controls: Sequence[str] = REQUIRED_CONTROLS) -> Table:
    """A table without codes: a look-up reads its layout and old ids alone."""
    layout = Layout(num_lang=len(kept), controls=tuple(controls))
    return Table(np.empty((0, BITS)), np.empty(0), layout, np.array(kept, np.int64))


def make_lookup(missing: str, kept: Sequence[int] = range(KEPT)) -> Lookup:
    pieces = cast(Pieces, Spelling())
    layout = IdLayout.dense(VOCAB, None)
    return lookup(make_table(kept), layout, pieces, missing)  # type: ignore[arg-type]


def naive(ids: Sequence[int], expand: bool) -> list[int]:
    """Rows by a plain loop: kept ids are their own rows, others their spelling or nothing."""
    new, out = make_table(range(KEPT)).layout, list[int]()
    for old in ids:
        if old < KEPT:
            out.append(old)
        elif old < VOCAB:
            out += Spelling().byte_expansion(old) if expand else []
        else:
            out.append(old - VOCAB + new.offsets["image"])
    return out


@st.composite
def old_ids(draw: st.DrawFn) -> np.ndarray:
    text = st.integers(0, VOCAB - 1)
    other = st.integers(VOCAB, IdLayout.dense(VOCAB, None).num_ids - 1)
    return np.array(draw(st.lists(text | other, min_size=1, max_size=60)), np.uint32)


@settings(deadline=None)
@given(old_ids())
def test_expansion_equals_a_plain_loop(ids: np.ndarray) -> None:
    mapping = make_lookup("expand")
    mapped = mapping.apply(ids)
    unspelt = (ids >= KEPT) & (ids < VOCAB) & (ids % 3 == 0)
    if unspelt.any():  # these are spelt by nothing, so that expanding would lose them
        assert mapped is None
        assert mapping.first_refused(ids) == np.argmax(unspelt)
        return
    assert mapped is not None
    assert mapped.rows.tolist() == naive(ids.tolist(), expand=True)
    assert mapped.num_expanded == np.count_nonzero((ids >= KEPT) & (ids < VOCAB))
    assert mapped.num_dropped == 0


@settings(deadline=None)
@given(old_ids())
def test_dropping_equals_a_plain_loop(ids: np.ndarray) -> None:
    mapped = make_lookup("drop").apply(ids)
    assert mapped is not None
    assert mapped.rows.tolist() == naive(ids.tolist(), expand=False)
    assert mapped.num_dropped == np.count_nonzero((ids >= KEPT) & (ids < VOCAB))
    assert mapped.num_expanded == 0


def test_refusing_names_the_first_id_without_a_row() -> None:
    mapping = make_lookup("error")
    ids = np.array([3, 0, KEPT, 5, KEPT + 1], np.uint32)
    assert mapping.apply(ids) is None
    assert mapping.first_refused(ids) == 2
    assert mapping.first_refused(ids[:2]) is None


def test_ids_outside_the_vocabulary_are_found() -> None:
    mapping = make_lookup("drop")
    ids = np.array([1, mapping.num_ids - 1, mapping.num_ids, 0], np.uint32)
    assert mapping.first_out_of_range(ids) == 2
    assert mapping.first_out_of_range(ids[:2]) is None


def test_language_rows_follow_the_tables_old_ids_in_any_order() -> None:
    mapping = make_lookup("drop", kept=[7, 2, 39])
    assert mapping.rows[[7, 2, 39]].tolist() == [0, 1, 2]
    assert np.count_nonzero(mapping.rows[:VOCAB] == MISSING) == VOCAB - 3


def test_bands_marks_and_controls_go_to_the_tables_places() -> None:
    old = IdLayout(
        vocab=VOCAB,
        bands={"audio": (100, 5), "image": (200, 7)},
        marks={"sep": 90, "image": 91},
        controls={"[/image]": 95, "[unknown]": 96},
    )
    new = make_table(range(KEPT)).layout
    rows = lookup(make_table(range(KEPT)), old, None, "drop").rows
    assert rows[100:105].tolist() == [new.offsets["audio"] + i for i in range(5)]
    assert rows[200:207].tolist() == [new.offsets["image"] + i for i in range(7)]
    assert rows[[90, 91, 95]].tolist() == [
        new.marks["sep"],
        new.marks["image"],
        new.control("[/image]"),
    ]
    assert rows[96] == MISSING
    assert len(rows) == 207
    assert set(BANDS) >= set(old.bands)


def test_a_piece_whose_bytes_have_no_row_is_refused_not_shortened() -> None:
    kept = range(1, KEPT)  # id 13 is spelt [1]; id 12 + 2 by [2, 3]; 11 + 12 by [11, 0]
    mapping = make_lookup("expand", kept)
    assert mapping.first_refused(np.array([13, 14, 23], np.uint32)) == 2


def test_without_a_layout_ids_are_text_up_to_the_tables_largest_or_as_told() -> None:
    table = make_table([0, 5, 9])
    assert lookup(table, None, None, "drop").num_ids == 10
    assert lookup(table, None, None, "drop", old_vocabulary=50).num_ids == 50


def test_without_a_layout_nothing_can_be_expanded() -> None:
    mapping = lookup(make_table([0, 5, 9]), None, None, "expand")
    assert mapping.first_refused(np.array([5, 6], np.uint32)) == 1


@pytest.mark.parametrize("ids", [[0, VOCAB], [-1, 3]])
def test_a_table_of_another_vocabulary_is_refused(ids: list[int]) -> None:
    with pytest.raises(LayoutError, match="lang_old_ids"):
        lookup(make_table(ids), IdLayout.dense(VOCAB, None), None)


def test_a_table_of_a_larger_vocabulary_than_told_is_refused() -> None:
    with pytest.raises(LayoutError, match="old_vocabulary"):
        lookup(make_table([0, 9]), None, None, old_vocabulary=9)


def test_rows_of_a_replaced_table_move() -> None:
    table = make_table([4, 8])
    swapped = replace(table, lang_old_ids=table.lang_old_ids[::-1])
    layout = IdLayout.dense(VOCAB, None)
    first, second = (lookup(t, layout, None, "drop").rows for t in (table, swapped))
    assert (first[4], first[8]) == (second[8], second[4])
