"""Pictures: read, write, and code as 4 x 4 patches (64 x 64 pixels give 256 codes).

Patches are coded in luma and chroma, chroma weighted less: an error there is seen less.

Legend: H height, W width; pictures are (H, W, 3) float32 RGB in [0, 1].
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from pydantic import Field, model_validator

from shadow_model.data.codebook import CodecConfig
from shadow_model.data.codec import Codec
from shadow_model.errors import DataError
from shadow_model.reading import reading
from shadow_model.store import write_whole
from shadow_model.table.layout import Kind

PICTURE_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".webp"})
MAX_PIXELS = 64_000_000
"""Larger pictures are refused before they are decoded: a small file may claim to be huge."""
_FORMATS = ("BMP", "JPEG", "PNG", "WEBP")
_TO_LUMA = np.array(
    [[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]], np.float32
)
_TO_RGB = np.linalg.inv(_TO_LUMA).astype(np.float32)


class PictureConfig(CodecConfig):
    """The picture codec's shape and effort."""

    side: int = Field(64, ge=4, le=1024, description="pixels on a side of the coded square")
    patch: int = Field(4, ge=1, le=64, description="pixels on a side of a patch")
    chroma_weight: float = Field(0.6, gt=0, le=4, description="weight of chroma, luma being 1")

    @model_validator(mode="after")
    def _check_side(self) -> "PictureConfig":
        check_patches(self.side, self.patch)
        return self

    @property
    def num_tokens(self) -> int:
        """Codes of one picture."""
        return (self.side // self.patch) ** 2


class PictureCodec(Codec[PictureConfig]):
    """Codes of pictures; decoding looks at the 3 x 3 patches around each."""

    kind: ClassVar[Kind] = "picture"
    config_type: ClassVar[type[CodecConfig]] = PictureConfig
    offsets: ClassVar[Sequence[tuple[int, ...]]] = [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)]

    @classmethod
    def vector_width(cls, config: PictureConfig) -> int:
        """Return the width of a grid's vectors."""
        return 3 * config.patch**2

    @classmethod
    def to_grid(cls, item: np.ndarray, config: PictureConfig) -> np.ndarray:
        """Return (side / patch, side / patch, 3 * patch^2) float32 of a picture of any size."""
        luma = to_luma(square(item, config.side), config.chroma_weight)
        n, p = config.side // config.patch, config.patch
        return luma.reshape(n, p, n, p, 3).transpose(0, 2, 1, 3, 4).reshape(n, n, -1)

    @classmethod
    def from_grid(cls, grid: np.ndarray, config: PictureConfig) -> np.ndarray:
        """Return (side, side, 3) float32 of its patches."""
        n, p = config.side // config.patch, config.patch
        luma = grid.reshape(n, n, p, p, 3).transpose(0, 2, 1, 3, 4)
        return to_rgb(luma.reshape(config.side, config.side, 3), config.chroma_weight)

    @classmethod
    def grid_shape(cls, num_codes: int, config: PictureConfig) -> tuple[int, ...]:  # noqa: ARG003
        """Return the grid of one picture."""
        return (config.side // config.patch,) * 2


def read_picture(path: Path) -> np.ndarray:
    """Read a picture file, turned as its camera says; what is transparent becomes white.

    Returns:
        (H, W, 3) float32 in [0, 1].

    Raises:
        DataError: The file is unreadable, truncated, empty, or has too many pixels.
    """
    with open_image(path, _FORMATS, "be a whole PNG, JPEG, WebP or BMP picture") as image:
        return to_array(ImageOps.exif_transpose(image))


@contextmanager
def open_image(
    path: Path, formats: tuple[str, ...], must: str, fix: str = "Repair or remove the file."
) -> Iterator[Image.Image]:
    """Open an image of one of some formats; what Pillow raises inside the block names the file.

    Raises:
        DataError: It is none, is not whole, or has too many pixels.
    """
    with (
        reading(DataError, path, must, fix, Image.DecompressionBombError),
        _identified(path, formats) as image,
    ):
        check_pixels(path, image.size)
        yield image


def _identified(path: Path, formats: tuple[str, ...]) -> Image.Image:
    try:
        return Image.open(path, formats=formats)
    except UnidentifiedImageError as error:
        raise ValueError(f"{path.stat().st_size} bytes of something else") from error
    except Image.DecompressionBombError as error:
        must = f"have at most {MAX_PIXELS} pixels"
        raise DataError(path, must, error, "Scale it down.") from error


def to_array(image: Image.Image) -> np.ndarray:
    """Return (H, W, 3) float32 in [0, 1] of an image of any mode, on white."""
    if image.mode.startswith("I"):  # 16 bits a pixel; Pillow's conversion would clip them
        grey = np.asarray(image, np.float32) / 65535
        return np.repeat(np.clip(grey, 0, 1)[..., None], 3, axis=2)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.asarray(image.convert("RGB"), np.float32) / 255


def square(picture: np.ndarray, side: int) -> np.ndarray:
    """Return the centre square of a picture, (side, side, 3), by area means or cubic growth."""
    height, width, _ = picture.shape
    if (height, width) == (side, side):
        return picture.astype(np.float32, copy=False)
    short = min(height, width)
    top, left = (height - short) // 2, (width - short) // 2
    image = to_image(picture[top : top + short, left : left + short])
    how = Image.Resampling.BOX if short >= side else Image.Resampling.BICUBIC
    return np.asarray(image.resize((side, side), how), np.float32) / 255


def to_image(picture: np.ndarray) -> Image.Image:
    """Return the 8-bit image of a picture (H, W, 3) in [0, 1]."""
    return Image.fromarray((np.clip(picture, 0, 1) * 255 + 0.5).astype(np.uint8))


def png_bytes(picture: np.ndarray) -> bytes:
    """Return a picture as the bytes of a PNG file."""
    buffer = io.BytesIO()
    to_image(picture).save(buffer, "PNG")
    return buffer.getvalue()


def write_png(path: Path, picture: np.ndarray) -> None:
    """Write a picture as a PNG file, whole or not at all."""
    write_whole(path, png_bytes(picture))


def to_luma(picture: np.ndarray, chroma_weight: float) -> np.ndarray:
    """Return (..., 3) float32 luma and weighted chroma, about 0, of RGB in [0, 1]."""
    weights = np.array([1, chroma_weight, chroma_weight], np.float32)
    return ((picture - np.float32(0.5)) @ _TO_LUMA.T) * weights


def to_rgb(luma: np.ndarray, chroma_weight: float) -> np.ndarray:
    """Undo `to_luma`, clipped to [0, 1]."""
    weights = np.array([1, chroma_weight, chroma_weight], np.float32)
    return np.clip((luma / weights) @ _TO_RGB.T + np.float32(0.5), 0, 1)


def check_pixels(path: Path, size: tuple[int, int]) -> None:
    """Raise DataError where an image is too large to be decoded, or empty."""
    if not 0 < size[0] * size[1] <= MAX_PIXELS:
        must = f"have between 1 and {MAX_PIXELS} pixels"
        raise DataError(path, must, f"{size[0]} x {size[1]}", "Scale it down.")


def check_patches(side: int, patch: int) -> None:
    """Raise ValueError (for a config's validator) where patches do not fill the side."""
    if side % patch:
        raise ValueError(f"side must be a multiple of patch, not {side} for {patch}")
