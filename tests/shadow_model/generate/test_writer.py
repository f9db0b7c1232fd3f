"""Prompts become rows, rows become text and files that can be read back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shadow_model.data.clip import read_clip
from shadow_model.data.picture import read_picture
from shadow_model.data.sound import SAMPLE_RATE, read_sound
from shadow_model.errors import DataError
from shadow_model.generate.writer import Writer, write_document


@pytest.fixture
def writer(made: Any) -> Writer:
    """The writer of the fixture's parts."""
    return Writer(made.table, made.pieces, made.codecs)


def test_prompts_are_text_that_comes_back(writer: Writer, made: Any) -> None:
    layout = made.table.layout
    rows = writer.prompt("the red mat – ü", "sound")
    assert rows[0] == layout.marks["sep"]
    assert rows[-1] == layout.control("[gen_audio]")
    assert writer.text(rows) == "[sep]the red mat – ü[gen_audio]"
    assert writer.prompt("") == [layout.marks["sep"]]


def test_a_kind_without_a_codec_cannot_be_wanted(made: Any) -> None:
    with pytest.raises(DataError, match="have a codec"):
        Writer(made.table, made.pieces, {}).prompt("x", "clip")


def test_documents_become_files(writer: Writer, made: Any, tmp_path: Path) -> None:
    layout, rng = made.table.layout, np.random.default_rng(1)
    rows = writer.prompt("a cat")
    for band, num in (("image", 16), ("audio", 5), ("video", 8)):
        codes = layout.offsets[band] + rng.integers(0, 16, num)
        rows += [layout.marks[band], *codes.tolist(), layout.control(f"[/{band}]")]
    paths = write_document(tmp_path, "d", writer.parts(rows), writer)
    text = paths[0].read_text()
    assert text.startswith("a cat[image][d_1.png][/image][audio][d_3.wav]")
    items = {path.suffix: path for path in paths[1:]}
    assert read_picture(items[".png"]).shape == (16, 16, 3)
    assert len(read_sound(items[".wav"])) == SAMPLE_RATE // 10
    config = made.codecs["clip"].config
    assert read_clip(items[".gif"], config).shape[1:] == (8, 8, 3)


def test_what_fills_no_item_is_told(writer: Writer, made: Any) -> None:
    layout = made.table.layout
    (part,) = writer.parts([layout.offsets["image"]] * 3)
    assert part.array is None
    assert "no whole picture" in part.text
