import numpy as np
import pytest

from shadow_model.table.layout import BANDS, END_CONTROLS, GENERATE_END, REQUIRED_CONTROLS
from shadow_model.table.synthetic import synthetic_spans, synthetic_table


def test_table_follows_the_stated_drawing_rule() -> None:
    table = synthetic_table(100, seed=3)
    rng = np.random.default_rng(3)
    rows = table.layout.num_rows
    assert np.array_equal(table.bits, rng.random((rows, 512)) < 0.5)
    assert np.array_equal(table.bias, rng.normal(-3, 1, rows).astype(np.float32))
    assert table.lang_old_ids.tolist() == list(range(100))


def test_table_has_the_controls_asked_for() -> None:
    table = synthetic_table(10, seed=0, controls=(*REQUIRED_CONTROLS, "[user]"))
    assert table.layout.control("[user]") == table.layout.num_rows - 1


@pytest.fixture(scope="module")
def layout():
    return synthetic_table(50, seed=0).layout


def test_spans_are_repeatable_and_differ_by_seed(layout) -> None:
    spans = synthetic_spans(layout, 3, 200, seed=5)
    assert spans.shape == (3, 201)
    assert spans.dtype == np.int64
    assert np.array_equal(spans, synthetic_spans(layout, 3, 200, seed=5))
    assert not np.array_equal(spans, synthetic_spans(layout, 3, 200, seed=6))


def test_every_row_holds_every_kind_and_half_of_it_is_text(layout) -> None:
    kinds = layout.kind_of_rows()[synthetic_spans(layout, 4, 512, seed=0)]
    for row in kinds:
        assert set(row) == {0, 1, 2, 3}
    assert 0.4 < (kinds == 0).mean() < 0.75  # stated: about half, marks included


def test_spans_are_well_formed(layout) -> None:
    """A band row stands only in a span of its band, opened and closed by its own rows."""
    ends = {band: layout.control(end) for band, end in zip(BANDS, END_CONTROLS, strict=True)}
    shown = {layout.marks[band]: band for band in BANDS}
    kinds = layout.kind_of_rows()
    for row in synthetic_spans(layout, 4, 2048, seed=1):
        band, asked, closed = None, False, 0
        for token in row.tolist():
            if token in layout.start_rows:
                assert band is None
                band, asked = layout.start_rows[token], token not in shown
            elif token in layout.end_rows:
                assert token == (layout.control(GENERATE_END) if asked else ends[band])
                band, closed = None, closed + 1
            elif band is not None:
                assert BANDS[kinds[token] - 1] == band
                assert kinds[token] > 0
            else:
                assert kinds[token] == 0
        assert closed >= 6


def test_what_follows_what_does_not_depend_on_the_seed(layout) -> None:
    """The commonest successor of a token is the same in other draws: there is a chain to learn."""

    def successors(seed: int) -> dict[int, int]:
        spans = synthetic_spans(layout, 8, 2048, seed)
        pairs, counts = np.unique(
            np.stack([spans[:, :-1].ravel(), spans[:, 1:].ravel()]), axis=1, return_counts=True
        )
        order = np.argsort(counts)  # the last of equal keys wins: the most frequent
        return dict(zip(pairs[0, order].tolist(), pairs[1, order].tolist(), strict=True))

    one, other = successors(0), successors(1)
    shared = [token for token in one if token in other and token < layout.num_lang]
    agree = np.mean([one[token] == other[token] for token in shared])
    assert agree > 0.9  # chance: 1/50; six of ten tokens follow their chain
