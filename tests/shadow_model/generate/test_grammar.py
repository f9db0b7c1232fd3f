"""Every span is well formed, whatever is drawn; prompts that are not are refused."""

import numpy as np
import pytest

from shadow_model.errors import DataError
from shadow_model.generate.grammar import Choice, Grammar, SpanLimits, State
from shadow_model.nn.readout import row_sets
from shadow_model.table.layout import BANDS, KINDS, Layout

LAYOUT = Layout(num_lang=50)
SETS = row_sets(LAYOUT)
LIMITS = {
    "picture": SpanLimits(100, 16, 16, 1),
    "sound": SpanLimits(60, 1, 10, 1),
    "clip": SpanLimits(30, 4, 12, 4),
}


def rows_of(choice: Choice) -> np.ndarray:
    """Return the table's rows that a choice allows."""
    rows = SETS[choice.kind]
    places = choice.allowed.nonzero()[:, 0].numpy()
    return np.where(places < rows.size, places + rows.first, places - rows.size + rows.tail)


def random_document(grammar: Grammar, rng: np.random.Generator, most: int) -> list[int]:
    """Draw a document, spans begun and ended as often as may be."""
    state, rows = State(), list[int]()
    while len(rows) < most:
        may = rows_of(grammar.choice(state, most - len(rows)))
        special = may[may >= SETS[0].tail]
        pool = special if len(special) and rng.random() < 0.5 else may
        rows.append(int(rng.choice(pool)))
        state = grammar.advance(state, rows[-1])
        if rows[-1] == grammar.separator:
            break
    assert state == State(), "a span was cut"
    return rows


@pytest.mark.parametrize("most", [3, 17, 18, 19, 60])
def test_random_documents_are_well_formed(most: int) -> None:
    grammar, rng = Grammar(LAYOUT, LIMITS), np.random.default_rng(most)
    kinds, seen = LAYOUT.kind_of_rows(), set[str]()
    for _ in range(120):
        rows = random_document(grammar, rng, most)
        place = 0
        while place < len(rows):
            row, place = rows[place], place + 1
            assert row not in LAYOUT.end_rows
            if row not in LAYOUT.start_rows:
                assert kinds[row] == 0
                continue
            band = LAYOUT.start_rows[row]
            kind = KINDS[BANDS.index(band) + 1]
            begun = place
            while kinds[rows[place]] == KINDS.index(kind):
                assert rows[place] - LAYOUT.offsets[band] < LIMITS[kind].codes
                place += 1
            length, limit = place - begun, LIMITS[kind]
            assert limit.least <= length <= limit.most
            assert (length - limit.least) % limit.step == 0
            marked = row == LAYOUT.marks[band]
            assert rows[place] == LAYOUT.control(f"[/{band}]" if marked else "[end_gen]")
            place, _ = place + 1, seen.add(kind)
    assert seen == (set(KINDS[1:]) if most > 17 else {"sound", "clip"} if most > 6 else {"sound"})


def test_outside_of_spans_there_is_no_end_and_with_starts_off_no_start() -> None:
    free = rows_of(Grammar(LAYOUT, LIMITS).choice(State(), 99))
    plain = rows_of(Grammar(LAYOUT, LIMITS, starts=False).choice(State(), 99))
    assert {*range(50), LAYOUT.marks["sep"]} <= {*plain}
    assert set(free) - set(plain) == set(LAYOUT.start_rows)
    assert not set(free) & set(LAYOUT.end_rows)


def test_kinds_without_a_codec_are_never_begun() -> None:
    rows = rows_of(Grammar(LAYOUT, {"sound": LIMITS["sound"]}).choice(State(), 99))
    begun = set(rows) & set(LAYOUT.start_rows)
    assert begun == {LAYOUT.marks["audio"], LAYOUT.control("[gen_audio]")}


@pytest.mark.parametrize(
    ("rows", "must"),
    [
        ([LAYOUT.control("[end_gen]")], "follow the start of its span"),
        ([LAYOUT.offsets["audio"]], "follow the start of its span"),
        ([LAYOUT.marks["image"], 3], "be a code or the end of a picture"),
        ([LAYOUT.marks["image"], LAYOUT.offsets["video"]], "be a code or the end of a picture"),
        ([LAYOUT.marks["image"], LAYOUT.control("[end_gen]")], "be a code or the end"),
    ],
)
def test_broken_prompts_are_refused(rows: list[int], must: str) -> None:
    with pytest.raises(DataError, match=must):
        Grammar(LAYOUT, LIMITS).after(rows)


def test_a_span_that_cannot_be_ended_is_refused() -> None:
    grammar = Grammar(LAYOUT, LIMITS)
    state = grammar.after([LAYOUT.marks["image"]])
    assert len(rows_of(grammar.choice(state, 17))) == 100
    with pytest.raises(DataError, match="leave room for a whole picture"):
        grammar.choice(state, 16)
