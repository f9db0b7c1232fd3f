"""Documents as old ids."""

import numpy as np
import pytest

from shadow_model.data.id_layout import IdLayout
from shadow_model.data.spans import SpanIds, count_kinds, generate, separated, understand
from shadow_model.errors import DataError

LAYOUT = IdLayout.dense(300, None)
CODES, CAPTION = np.array([0, 5, 3], np.int32), np.array([7, 8], np.int32)


@pytest.mark.parametrize(
    ("kind", "band"), [("picture", "image"), ("sound", "audio"), ("clip", "video")]
)
def test_a_pair_is_written_in_both_orders(kind: str, band: str) -> None:
    ids = SpanIds.of(LAYOUT, kind, "layout.json")  # type: ignore[arg-type]
    first = LAYOUT.bands[band][0]  # type: ignore[index]
    codes = [first, first + 5, first + 3]
    start, end = LAYOUT.marks[band], LAYOUT.controls[f"[/{band}]"]  # type: ignore[index]
    ask, done = LAYOUT.controls[f"[gen_{band}]"], LAYOUT.controls["[end_gen]"]
    assert understand(ids, CODES, CAPTION).tolist() == [start, *codes, end, 7, 8]
    assert generate(ids, CODES, CAPTION).tolist() == [7, 8, ask, *codes, done]


def test_every_document_ends_with_sep() -> None:
    assert separated([CAPTION, CODES], 99).tolist() == [7, 8, 99, 0, 5, 3, 99]


def test_kinds_are_counted_and_marks_are_text() -> None:
    ids = SpanIds.of(LAYOUT, "sound", "layout.json")
    stream = separated([understand(ids, CODES, CAPTION)], LAYOUT.marks["sep"])
    assert count_kinds(stream, LAYOUT) == {"text": 5, "picture": 0, "sound": 3, "clip": 0}
    assert count_kinds(stream, None)["text"] == 8


@pytest.mark.parametrize(
    ("part", "lost", "said"),
    [
        ("bands", "image", "the bands"),
        ("marks", "image", "image"),
        ("marks", "sep", "sep"),
        ("controls", "[gen_image]", "gen_image"),
    ],
)
def test_a_layout_without_a_place_for_the_kind_is_refused(part: str, lost: str, said: str) -> None:
    places = {k: v for k, v in getattr(LAYOUT, part).items() if k != lost}
    layout = LAYOUT.replace(**{part: places})
    with pytest.raises(DataError, match=said):
        SpanIds.of(layout, "picture", "layout.json")
