"""Windows reach the device as they are, with the span that they begin in."""

from pathlib import Path

import numpy as np
import pytest
import torch

from shadow_model.data.bins import Bin
from shadow_model.data.windows import read_windows
from shadow_model.nn.kinds import next_kinds
from shadow_model.table.layout import REQUIRED_CONTROLS, Layout
from shadow_model.train.feed import Feed

LAYOUT = Layout(num_lang=50, controls=(*REQUIRED_CONTROLS, "[pause]"))
PICTURE = LAYOUT.offsets["image"]
PAUSE = LAYOUT.control("[pause]")
IDS = [
    *[1, 2, LAYOUT.marks["image"], PICTURE + 3, PAUSE, PAUSE, PICTURE + 4],
    *[LAYOUT.control("[/image]"), 3, PAUSE, 4, LAYOUT.marks["sep"]],
    *[LAYOUT.control("[gen_audio]"), PAUSE, LAYOUT.offsets["audio"], LAYOUT.control("[end_gen]")],
    *[PAUSE, 5, 6],
]


@pytest.fixture
def feed() -> Feed:
    stream = Bin(Path("train.bin"), np.array(IDS, np.uint32))
    return Feed(stream, LAYOUT, torch.device("cpu"))


def test_every_window_has_the_kinds_of_the_whole_stream(feed: Feed) -> None:
    """A window's kinds, with its initial kind, are those of the same places read from 0."""
    whole = next_kinds(torch.tensor([IDS]), LAYOUT)
    for start in range(len(IDS) - 3):
        ids = torch.tensor([IDS[start : start + 3]])
        initial = torch.tensor([feed.initial_kind(start)])
        assert torch.equal(next_kinds(ids, LAYOUT, initial), whole[:, start : start + 3]), start


def test_batch_is_unchanged(feed: Feed) -> None:
    stream = Bin(Path("train.bin"), np.array(IDS, np.uint32))
    batch = read_windows(stream, np.array([0, 4, 9]), 5)
    loaded = feed.load(batch)
    assert loaded.ids.tolist() == [IDS[s : s + 5] for s in (0, 4, 9)]
    assert loaded.targets.tolist() == [IDS[s + 1 : s + 6] for s in (0, 4, 9)]
    assert loaded.initial is not None
    assert loaded.initial.tolist() == [0, 1, 0]
    assert loaded.ids.dtype == torch.int64
