"""The three kinds together: fitting, loading, reading, measuring, showing."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shadow_model.data.clip import ClipConfig, write_animated
from shadow_model.data.media import (
    MEDIA_KINDS,
    MEDIA_SUFFIXES,
    MediaCodec,
    MediaConfig,
    MediaKind,
    contact_sheet,
    fit_codec,
    load_codecs,
    measure,
    read_media,
)
from shadow_model.data.picture import PictureConfig, write_png
from shadow_model.data.sound import SAMPLE_RATE, SoundConfig, write_wav
from shadow_model.errors import DataError

CONFIG = MediaConfig(
    picture=PictureConfig(side=16, first=8, second=4),
    sound=SoundConfig(first=8, second=4, max_seconds=0.2, phase_rounds=4),
    clip=ClipConfig(side=16, frames=4, first=8, second=4),
)


@pytest.fixture(scope="module")
def items() -> dict[MediaKind, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    shapes: dict[MediaKind, tuple[int, ...]] = {
        "picture": (16, 16, 3),
        "sound": (3200,),
        "clip": (4, 16, 16, 3),
    }
    return {kind: list(rng.random((6, *shape), np.float32)) for kind, shape in shapes.items()}


@pytest.fixture(scope="module")
def codecs(items: dict[MediaKind, list[np.ndarray]]) -> dict[MediaKind, MediaCodec]:
    return {kind: fit_codec(kind, items[kind], CONFIG, seed=0) for kind in MEDIA_KINDS}


def test_saved_codecs_are_all_found(
    codecs: dict[MediaKind, MediaCodec], items: dict[MediaKind, list[np.ndarray]], tmp_path: Path
) -> None:
    for codec in codecs.values():
        codec.save(tmp_path)

    loaded = load_codecs(tmp_path)

    assert list(loaded) == list(MEDIA_KINDS)
    for kind in MEDIA_KINDS:
        item = items[kind][0]
        np.testing.assert_array_equal(loaded[kind].encode(item), codecs[kind].encode(item))


def test_absent_codecs_are_left_out(codecs: dict[MediaKind, MediaCodec], tmp_path: Path) -> None:
    codecs["sound"].save(tmp_path)

    assert list(load_codecs(tmp_path)) == ["sound"]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("picture", {"items", "psnr_db"}),
        ("sound", {"items", "log_mel_distance_db", "log_mel_distance_wave_db"}),
        ("clip", {"items", "psnr_db"}),
    ],
)
def test_measures_are_named_by_kind(
    codecs: dict[MediaKind, MediaCodec],
    items: dict[MediaKind, list[np.ndarray]],
    kind: MediaKind,
    names: set[str],
) -> None:
    figures = measure(codecs[kind], items[kind][:2])

    assert set(figures) == names
    assert figures["items"] == 2
    assert all(np.isfinite(value) for value in figures.values())
    assert measure(codecs[kind], []) == {"items": 0}


def test_long_media_are_cut_into_items(tmp_path: Path) -> None:
    write_png(tmp_path / "a.png", np.zeros((5, 6, 3), np.float32))
    write_wav(tmp_path / "a.wav", np.zeros(SAMPLE_RATE // 2, np.float32))
    write_animated(tmp_path / "a.gif", np.zeros((9, 4, 4, 3), np.float32), 8.0)

    shapes = {
        suffix: [item.shape for item in read_media(kind, tmp_path / f"a{suffix}", CONFIG)]
        for kind, suffix in (("picture", ".png"), ("sound", ".wav"), ("clip", ".gif"))
    }

    assert shapes == {
        ".png": [(5, 6, 3)],
        ".wav": [(3200,), (3200,), (1600,)],
        ".gif": [(4, 16, 16, 3)] * 2,
    }


@pytest.mark.parametrize("kind", MEDIA_KINDS)
def test_reading_names_a_bad_file(tmp_path: Path, kind: MediaKind) -> None:
    path = tmp_path / f"bad{min(MEDIA_SUFFIXES[kind])}"
    path.write_bytes(b"no such thing")

    with pytest.raises(DataError, match="bad"):
        read_media(kind, path, CONFIG)


@pytest.mark.parametrize("kind", MEDIA_KINDS)
def test_contact_sheet_shows_what_it_is_given(
    items: dict[MediaKind, list[np.ndarray]], kind: MediaKind
) -> None:
    sheet = contact_sheet(items[kind][:3], items[kind][3:], scale=2, columns=2)

    shown = np.asarray(Image.open(io.BytesIO(sheet)), np.float32) / 255
    height, width = {"picture": (16, 16), "sound": (64, 10), "clip": (16, 48)}[kind]
    # two rows of pairs, each pair two items high; gaps of 2, and 2 more under each item
    assert shown.shape == (2 * 2 * (2 * (height + 2) + 6), 2 * 2 * (width + 2), 3)
    if kind == "picture":
        # 8 bits: half a level
        np.testing.assert_allclose(shown[0:32:2, 0:32:2], items[kind][0], atol=0.51 / 255)
        np.testing.assert_allclose(shown[36:68:2, 0:32:2], items[kind][3], atol=0.51 / 255)
