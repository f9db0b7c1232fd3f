"""References to media items, and reading them."""

from pathlib import Path

import numpy as np
import pytest

from shadow_model.data.clip import ClipConfig, write_animated
from shadow_model.data.inputs import SourceInput
from shadow_model.data.items import ItemRef, list_items, media_files, read_item, read_sample
from shadow_model.data.media import MediaConfig
from shadow_model.data.picture import write_png
from shadow_model.data.sound import SoundConfig, write_wav
from shadow_model.errors import DataError

CONFIG = MediaConfig(
    sound=SoundConfig(max_seconds=1.0), clip=ClipConfig(side=16, frames=4, frames_per_second=8)
)
RNG = np.random.default_rng(0)


def picture(height: int = 40, width: int = 30) -> np.ndarray:
    return RNG.random((height, width, 3), np.float32)


def source(kind: str, path: Path) -> SourceInput:
    return SourceInput.parse({"name": "mine", "kind": kind, "path": path}, "test")


def test_pictures_are_listed_with_captions_and_read_cut_to_size(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    write_png(tmp_path / "b" / "red_fox.png", picture())
    write_png(tmp_path / "cat_1.png", picture())
    (tmp_path / "cat_1.txt").write_text("a cat")
    items = list_items(source("pictures", tmp_path), CONFIG)
    assert [(i.kind, i.caption, i.group, i.tokens) for i in items] == [
        ("picture", "red fox", "b/red_fox.png", 256),
        ("picture", "a cat", "cat_1.png", 256),
    ]
    (array,) = read_item(items[0], CONFIG)
    assert array.shape == (64, 64, 3)


def test_a_long_sound_gives_several_arrays(tmp_path: Path) -> None:
    write_wav(tmp_path / "hum.wav", RNG.random(40_000).astype(np.float32))
    (item,) = list_items(source("sounds", tmp_path), CONFIG)
    assert [len(array) for array in read_item(item, CONFIG)] == [16_000, 16_000, 8_000]


def test_films_and_folders_of_frames_are_clips(tmp_path: Path) -> None:
    frames = RNG.random((4, 16, 16, 3)).astype(np.float32)
    write_animated(tmp_path / "wave.gif", frames, 8)
    (tmp_path / "walk").mkdir()
    for number in range(4):
        write_png(tmp_path / "walk" / f"{number}.png", picture())
    assert [path.name for path in media_files(tmp_path, "clip")] == ["walk", "wave.gif"]
    for item in list_items(source("clips", tmp_path), CONFIG):
        assert [array.shape for array in read_item(item, CONFIG)] == [(4, 16, 16, 3)]


@pytest.mark.parametrize("kind", ["pictures", "sounds", "clips"])
def test_an_empty_folder_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DataError, match="files ending in"):
        list_items(source(kind, tmp_path), CONFIG)


@pytest.mark.parametrize(
    ("kind", "name"), [("pictures", "a.png"), ("sounds", "a.wav"), ("clips", "a.mp4")]
)
def test_an_unreadable_file_is_refused_by_name(tmp_path: Path, kind: str, name: str) -> None:
    (tmp_path / name).write_bytes(b"nothing of the kind")
    (item,) = list_items(source(kind, tmp_path), CONFIG)
    with pytest.raises(DataError, match=name):
        read_item(item, CONFIG)


def test_a_sample_is_even_and_bounded() -> None:
    items = [
        ItemRef("clip", "", str(i), 1, None, np.full((4, 16, 16, 3), i, np.float32))
        for i in range(10)
    ]
    assert [int(array.flat[0]) for array in read_sample(items, CONFIG, 5)] == [0, 2, 4, 6, 8]
    assert len(read_sample(items, CONFIG, 100)) == 10


def test_a_long_file_gives_a_sample_its_share(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_wav(tmp_path / f"{name}.wav", RNG.random(16_000 * 10).astype(np.float32))
    items = list_items(source("sounds", tmp_path), CONFIG)
    assert len(read_sample(items, CONFIG, 6)) == 6
