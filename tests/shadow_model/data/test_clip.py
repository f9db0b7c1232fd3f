"""Clips: reading films, animations and folders, patches in space and time, bad files."""

from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from shadow_model.data import clip
from shadow_model.data.clip import (
    ClipCodec,
    ClipConfig,
    cut_clip,
    read_clip,
    write_animated,
)
from shadow_model.data.picture import write_png
from shadow_model.errors import DataError
from shadow_model.table.layout import BAND_ROWS

CONFIG = ClipConfig(side=16, frames=4)


def shades(count: int, side: int = 16) -> np.ndarray:
    """Grey frames, each lighter than the one before."""
    greys = np.linspace(0.1, 0.9, count, dtype=np.float32)
    return np.broadcast_to(greys[:, None, None, None], (count, side, side, 3)).copy()


def write_film(path: Path, frames: np.ndarray, rate: int) -> None:
    with av.open(str(path), "w", options={"movflags": "faststart"}) as film:
        stream = film.add_stream("mpeg4", rate=rate)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            picture = av.VideoFrame.from_ndarray((frame * 255).astype(np.uint8), format="rgb24")
            film.mux(stream.encode(picture))
        film.mux(stream.encode())


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_written_animation_is_read_back(tmp_path: Path, suffix: str) -> None:
    original = shades(6)

    write_animated(tmp_path / f"a{suffix}", original, 8.0)

    found = read_clip(tmp_path / f"a{suffix}", CONFIG)
    # a palette of 256 greys is exact to 1 / 255; WebP is lossy by default, a few levels
    np.testing.assert_allclose(found, original, atol=4 / 255)


def test_frames_are_taken_at_the_rate(tmp_path: Path) -> None:
    write_animated(tmp_path / "a.gif", shades(6), 4.0)

    found = read_clip(tmp_path / "a.gif", CONFIG)  # 8 a second: each frame twice

    assert len(found) == 12
    np.testing.assert_array_equal(found[::2], found[1::2])


def test_film_is_read(tmp_path: Path) -> None:
    write_film(tmp_path / "a.mp4", shades(32, 32), rate=32)

    found = read_clip(tmp_path / "a.mp4", CONFIG)

    assert found.shape == (8, 16, 16, 3)
    # a lossy film and its narrowed range of levels: within 0.05; frames differ by 0.1
    np.testing.assert_allclose(found[:, 8, 8, 0], shades(32)[::4, 0, 0, 0], atol=0.05)


def test_folder_of_pictures_is_a_clip(tmp_path: Path) -> None:
    for i, frame in enumerate(shades(3)):
        write_png(tmp_path / f"frame_{i}.png", frame)
    (tmp_path / "notes.txt").write_text("not a frame")

    # 8 bits: half a level
    np.testing.assert_allclose(read_clip(tmp_path, CONFIG), shades(3), atol=0.51 / 255)


def test_patches_there_and_back() -> None:
    original = np.random.default_rng(0).random((4, 16, 16, 3), np.float32)

    grid = ClipCodec.to_grid(original, CONFIG)

    assert grid.shape == (2, 4, 4, 96)
    # luma and chroma and back: two products of 3 x 3 matrices in float32
    np.testing.assert_allclose(ClipCodec.from_grid(grid, CONFIG), original, atol=1e-5)
    changed = original.copy()
    changed[3, 4:8, 8:12] = 0.5
    moved = (ClipCodec.to_grid(changed, CONFIG) != grid).any(3)
    np.testing.assert_array_equal(np.argwhere(moved), [[1, 1, 2]])


def test_odd_last_frame_is_doubled() -> None:
    grid = ClipCodec.to_grid(shades(3), CONFIG)

    np.testing.assert_array_equal(
        ClipCodec.from_grid(grid, CONFIG)[2], ClipCodec.from_grid(grid, CONFIG)[3]
    )


def test_codec_there_and_back() -> None:
    rng = np.random.default_rng(0)
    items = [
        shades(4) * rng.uniform(0.2, 1, 3).astype("f4") * rng.random((1, 16, 16, 1), "f4")
        for _ in range(8)
    ]
    codec = ClipCodec.fit(items, CONFIG.replace(first=16, second=8), seed=0)

    codes = codec.encode(items[0])

    assert codes.shape == (CONFIG.num_tokens,) == (32,)
    assert codec.decode(codes).shape == (4, 16, 16, 3)
    assert codec.codebook.shape == (128, 96)
    with pytest.raises(DataError, match="fill a grid"):
        codec.decode(codes[:-1])


def test_cut_leaves_out_a_rest() -> None:
    assert [len(c) for c in cut_clip(shades(11), 4)] == [4, 4]
    assert [len(c) for c in cut_clip(shades(3), 4)] == [3]


def test_default_codes_fill_the_band() -> None:
    assert ClipConfig().num_codes == BAND_ROWS["video"]
    assert ClipConfig().num_tokens == 256
    assert ClipConfig(side=64, frames=2).num_tokens == 256


@pytest.mark.parametrize("name", ["a.gif", "a.webp", "a.mp4"])
@pytest.mark.parametrize("damage", ["empty", "text", "truncated"])
def test_bad_files_are_named(tmp_path: Path, name: str, damage: str) -> None:
    path = tmp_path / name
    noise = np.random.default_rng(0).random((12, 32, 32, 3), np.float32)
    if name == "a.mp4":
        write_film(path, noise, rate=8)
    else:
        write_animated(path, noise, 8.0)
    whole = path.read_bytes()
    path.write_bytes(
        {"empty": b"", "text": b"hello", "truncated": whole[: len(whole) // 2]}[damage]
    )

    with pytest.raises(DataError, match=r"a\.\w+: must be a whole clip.*Repair or remove"):
        read_clip(path, CONFIG)


def test_film_without_pictures_is_refused(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "a.mp4"), "w") as film:
        stream = film.add_stream("aac", rate=16_000)
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), "f4"), "fltp", "mono")
        silence.sample_rate = 16_000
        film.mux(stream.encode(silence))
        film.mux(stream.encode())

    with pytest.raises(DataError, match="no pictures in it"):
        read_clip(tmp_path / "a.mp4", CONFIG)


def test_empty_folder_and_absent_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="found no frame"):
        read_clip(tmp_path, CONFIG)
    with pytest.raises(DataError, match=r"none.gif.*No such file"):
        read_clip(tmp_path / "none.gif", CONFIG)
    with pytest.raises(DataError, match=r"none.mp4.*No such file"):
        read_clip(tmp_path / "none.mp4", CONFIG)


def test_too_long_clip_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clip, "MAX_FRAMES", 5)
    write_animated(tmp_path / "a.gif", shades(6), 8.0)

    with pytest.raises(DataError, match="at most 5 frames"):
        read_clip(tmp_path / "a.gif", CONFIG)


def test_huge_animation_is_refused(tmp_path: Path) -> None:
    Image.new("P", (2, 2)).save(tmp_path / "a.gif")
    content = bytearray((tmp_path / "a.gif").read_bytes())
    content[6:10] = b"\xff\xff\xff\xff"  # the screen's width and height
    (tmp_path / "a.gif").write_bytes(bytes(content))

    with pytest.raises(DataError, match=r"a.gif"):
        read_clip(tmp_path / "a.gif", CONFIG)


def test_animation_of_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"end in .gif or .webp"):
        write_animated(tmp_path / "a.png", shades(2), 8.0)
