"""Pictures of the data are embedded whole; a file that is no picture is refused."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shadow_model.errors import DataError
from shadow_model.report.previews import read_previews


def save(folder: Path, name: str, width: int = 40) -> None:
    (folder / "preview").mkdir(exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 256, (20, width, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(folder / "preview" / name)


def test_picture_is_the_same_inside_the_page(tmp_path: Path) -> None:
    save(tmp_path, "pictures.png")
    (preview,) = read_previews(tmp_path, 10)
    head, _, data = preview.uri.partition(",")
    assert head == "data:image/png;base64"
    embedded = Image.open(io.BytesIO(base64.b64decode(data)))
    original = Image.open(tmp_path / "preview" / "pictures.png")
    assert np.array_equal(np.asarray(embedded), np.asarray(original))
    assert (preview.name, preview.width_px, preview.height_px) == ("pictures", 40, 20)


def test_large_picture_is_made_smaller(tmp_path: Path) -> None:
    save(tmp_path, "wide.png", width=3200)
    assert read_previews(tmp_path, 10)[0].width_px == 1600


def test_order_and_limit(tmp_path: Path) -> None:
    for name in ("b.png", "a_x.png", "c.png"):
        save(tmp_path, name)
    assert [p.name for p in read_previews(tmp_path, 2)] == ["a x", "b"]
    assert read_previews(tmp_path / "none", 2) == []


def test_file_that_is_no_picture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "preview").mkdir()
    (tmp_path / "preview" / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n cut")
    with pytest.raises(DataError, match=r"bad\.png: must be a PNG"):
        read_previews(tmp_path, 3)
