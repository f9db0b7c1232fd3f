"""Kinds of the next token, by spans."""

import torch

from shadow_model.nn.kinds import next_kinds
from shadow_model.table.layout import Layout

LAYOUT = Layout(num_lang=50)
MARKS, OFF = LAYOUT.marks, LAYOUT.offsets
END = {band: LAYOUT.control(f"[/{band}]") for band in ("image", "audio", "video")}
GEN = {band: LAYOUT.control(f"[gen_{band}]") for band in ("image", "audio", "video")}
END_GEN = LAYOUT.control("[end_gen]")


def kinds(rows: list[int], initial: int | None = None) -> list[int]:
    start = None if initial is None else torch.tensor([initial])
    found = next_kinds(torch.tensor([rows]), LAYOUT, start)
    assert found.dtype == torch.int8
    return found[0].tolist()


def test_marked_and_asked_spans_of_every_kind() -> None:
    for kind, band in enumerate(("image", "audio", "video"), 1):
        code = OFF[band] + 3
        assert kinds([1, MARKS[band], code, code, END[band], 2]) == [0, kind, kind, kind, 0, 0]
        assert kinds([1, GEN[band], code, END_GEN, 2]) == [0, kind, kind, 0, 0]


def test_latest_start_wins() -> None:
    rows = [MARKS["image"], MARKS["audio"], OFF["audio"], END["audio"], 4]
    assert kinds(rows) == [1, 2, 2, 0, 0]


def test_band_row_tells_its_own_kind_anywhere() -> None:
    assert kinds([OFF["video"], 1]) == [3, 0]
    assert kinds([MARKS["image"], OFF["audio"], 1]) == [1, 2, 1]


def test_document_end_closes_an_open_span() -> None:
    assert kinds([MARKS["image"], OFF["image"], MARKS["sep"], 1]) == [1, 1, 0, 0]


def test_window_that_begins_inside_a_span_starts_with_its_state() -> None:
    rows = [1, OFF["image"], END["image"], 1]
    assert kinds(rows, initial=1) == [1, 1, 0, 0]
    assert kinds(rows, initial=0) == kinds(rows) == [0, 1, 0, 0]


def test_windows_of_a_stream_agree_with_the_whole() -> None:
    stream = [1, MARKS["image"], OFF["image"], 5, OFF["image"], END["image"], GEN["audio"], 7, 8]
    whole = kinds(stream)
    assert whole == [0, 1, 1, 1, 1, 0, 2, 2, 2]
    for cut in range(1, len(stream)):
        assert kinds(stream[cut:], initial=whole[cut - 1]) == whole[cut:]


def test_rows_of_a_batch_are_apart() -> None:
    ids = torch.tensor([[MARKS["image"], 1], [1, 1]])
    assert next_kinds(ids, LAYOUT).tolist() == [[1, 1], [0, 0]]
