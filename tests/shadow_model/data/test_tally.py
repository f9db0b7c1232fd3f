import numpy as np
import pytest

from shadow_model.data.tally import count_kinds, named
from shadow_model.table.layout import Layout

LAYOUT = Layout(num_lang=300)


@pytest.mark.parametrize("highest", [300, LAYOUT.num_rows], ids=["text", "all"])
def test_counts_equal_the_layouts_own_kind_of_every_row(highest: int) -> None:
    rows = np.random.default_rng(0).integers(0, highest, 5000).astype(np.uint32)
    expected = np.bincount(LAYOUT.kind_of_rows()[rows], minlength=4)
    assert count_kinds(rows, LAYOUT).tolist() == expected.tolist()


def test_every_edge_row_is_counted_where_it_belongs() -> None:
    firsts = np.array(list(LAYOUT.offsets.values()), np.uint32)
    for row in [*firsts, *(firsts - 1), LAYOUT.marks["image"], LAYOUT.num_rows - 1]:
        counts = count_kinds(np.array([row], np.uint32), LAYOUT)
        assert counts[LAYOUT.kind_of_rows()[row]] == counts.sum() == 1


def test_named_counts_are_plain_integers() -> None:
    assert named(np.array([1, 2, 3, 4])) == {"text": 1, "picture": 2, "sound": 3, "clip": 4}
