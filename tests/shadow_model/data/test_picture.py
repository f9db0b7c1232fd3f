"""Pictures: reading every mode onto white, square cuts, patches there and back, bad files."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shadow_model.data import picture
from shadow_model.data.picture import (
    PictureCodec,
    PictureConfig,
    read_picture,
    square,
    write_png,
)
from shadow_model.errors import ConfigError, DataError
from shadow_model.table.layout import BAND_ROWS


def test_written_picture_is_read_back(tmp_path: Path) -> None:
    original = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.float32) / 255

    write_png(tmp_path / "a.png", original)

    # 8 bits hold these values exactly; dividing again rounds by at most one unit in float32
    np.testing.assert_allclose(read_picture(tmp_path / "a.png"), original, atol=1e-7)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_becomes_white(tmp_path: Path, mode: str) -> None:
    image = Image.new("RGBA", (4, 4), (255, 0, 0, 255))
    image.putpixel((0, 0), (0, 0, 0, 0))
    if mode == "P":
        image = image.quantize(4)
    image.convert(mode).save(tmp_path / "a.png")

    np.testing.assert_array_equal(read_picture(tmp_path / "a.png")[0, 0], [1, 1, 1])


def test_half_transparent_is_mixed_with_white(tmp_path: Path) -> None:
    Image.new("RGBA", (2, 2), (0, 0, 0, 51)).save(tmp_path / "a.png")

    # 51 / 255 is a fifth black; 8 bits round by at most half of 1 / 255
    np.testing.assert_allclose(read_picture(tmp_path / "a.png"), 0.8, atol=0.5 / 255)


def test_sixteen_bits_keep_their_range(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 32768, 65535]], np.uint16)).save(tmp_path / "a.png")

    grey = read_picture(tmp_path / "a.png")[0, :, 0]

    np.testing.assert_allclose(grey, [0, 32768 / 65535, 1], atol=1e-6)  # float32 rounding


def test_picture_is_turned_as_its_camera_says(tmp_path: Path) -> None:
    image = Image.new("RGB", (6, 3))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn a quarter to the right
    image.save(tmp_path / "a.jpg", exif=exif)

    assert read_picture(tmp_path / "a.jpg").shape == (6, 3, 3)


def test_square_takes_the_centre() -> None:
    wide = np.zeros((4, 8, 3), np.float32)
    wide[:, 2:6] = 1

    np.testing.assert_array_equal(square(wide, 2), np.ones((2, 2, 3)))


def test_square_keeps_what_fits() -> None:
    fits = np.random.default_rng(0).random((8, 8, 3), np.float32)

    assert square(fits, 8) is fits
    assert square(fits, 16).shape == (16, 16, 3)


def test_patches_there_and_back() -> None:
    config = PictureConfig(side=16)
    original = np.random.default_rng(0).random((16, 16, 3), np.float32)

    grid = PictureCodec.to_grid(original, config)

    assert grid.shape == (4, 4, 48)
    # luma and chroma and back: two products of 3 x 3 matrices in float32
    np.testing.assert_allclose(PictureCodec.from_grid(grid, config), original, atol=1e-5)
    changed = original.copy()
    changed[4:8, 8:12] = 0.5
    moved = (PictureCodec.to_grid(changed, config) != grid).any(2)
    np.testing.assert_array_equal(np.argwhere(moved), [[1, 2]])


def test_default_gives_256_codes_within_the_band() -> None:
    config = PictureConfig()

    assert config.num_tokens == 256
    assert config.num_codes == BAND_ROWS["image"]


def test_side_must_be_whole_patches() -> None:
    with pytest.raises(ConfigError, match="multiple of patch"):
        PictureConfig.parse({"side": 30}, "here")


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp"])
@pytest.mark.parametrize("damage", ["empty", "text", "truncated"])
def test_bad_files_are_named(tmp_path: Path, name: str, damage: str) -> None:
    path = tmp_path / name
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(path)
    whole = path.read_bytes()
    path.write_bytes(
        {"empty": b"", "text": b"hello", "truncated": whole[: len(whole) // 2]}[damage]
    )

    with pytest.raises(DataError, match=r"a\.\w+: must be a whole PNG.*Repair or remove"):
        read_picture(path)


def test_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.png.*No such file"):
        read_picture(tmp_path / "none.png")


@pytest.mark.parametrize("side", [9_000, 60_000])
def test_huge_picture_is_refused_before_it_is_decoded(tmp_path: Path, side: int) -> None:
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
    (tmp_path / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + body)

    with pytest.raises(DataError, match=r"bomb.png: must have .*pixels"):
        read_picture(tmp_path / "bomb.png")


def test_limit_of_pixels_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "MAX_PIXELS", 99)
    write_png(tmp_path / "a.png", np.zeros((10, 10, 3), np.float32))

    with pytest.raises(DataError, match="found 10 x 10"):
        read_picture(tmp_path / "a.png")
