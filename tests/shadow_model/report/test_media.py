"""Sounds and clips of the samples play inside the page."""

import base64
from pathlib import Path

import pytest

from shadow_model.errors import DataError
from shadow_model.report import media
from shadow_model.report.media import read_playables

TOLD = [
    {"kind": "text", "begins": "a"},
    {"kind": "sound", "begins": "a bell"},
    {"kind": "clip", "begins": "the sea"},
    {"kind": "clip", "begins": "nothing came of it"},
]


def test_files_are_found_by_the_number_of_their_sample(tmp_path: Path) -> None:
    (tmp_path / "sound_1_data_0.wav").write_bytes(b"data")
    (tmp_path / "sound_1_model_0.wav").write_bytes(b"model")
    (tmp_path / "clip_2_data_0.gif").write_bytes(b"gif")
    sound, clip = read_playables(tmp_path, TOLD)
    assert (sound.kind, sound.begins, list(sound.uris)) == ("sound", "a bell", ["data", "model"])
    head, _, content = sound.uris["model"].partition(",")
    assert (head, base64.b64decode(content)) == ("data:audio/wav;base64", b"model")
    assert (clip.begins, list(clip.uris)) == ("the sea", ["data"])


def test_a_file_that_no_sample_can_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media, "_MAX_BYTES", 3)
    (tmp_path / "clip_2_data_0.gif").write_bytes(b"gif89")
    with pytest.raises(DataError, match=r"clip_2_data_0\.gif: must hold at most 3 bytes; found 5"):
        read_playables(tmp_path, TOLD)
