"""Clips: read, write, and code as patches of 2 frames x 4 x 4 pixels.

At 32 x 32 pixels a pair of frames has 64 codes, at 64 x 64 pixels 256.

Legend: T frames; clips are (T, H, W, 3) float32 RGB in [0, 1].
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import av
import numpy as np
from PIL import Image, ImageSequence
from pydantic import Field, model_validator

from shadow_model.data.codebook import CodecConfig
from shadow_model.data.codec import Codec
from shadow_model.data.picture import (
    PICTURE_SUFFIXES,
    check_patches,
    check_pixels,
    open_image,
    read_picture,
    square,
    to_array,
    to_image,
    to_luma,
    to_rgb,
)
from shadow_model.errors import DataError
from shadow_model.reading import reading
from shadow_model.store import write_whole
from shadow_model.table.layout import Kind

CLIP_SUFFIXES = frozenset({".avi", ".gif", ".mkv", ".mov", ".mp4", ".webm", ".webp"})
MAX_FRAMES = 20_000
"""Clips that keep more frames than this are refused."""
_PAIR = 2
_MUST = "be a whole clip"
_FIX = "Repair or remove the file."
_FILM_OPTIONS: Mapping[str, str] = {
    # by content, ffmpeg would also take a play list, which names other files and addresses
    "format_whitelist": "avi,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2",
    "protocol_whitelist": "file",
}


class ClipConfig(CodecConfig):
    """The clip codec's shape and effort."""

    first: int = Field(64, ge=2, le=64, description="first centres (A)")
    second: int = Field(64, ge=2, le=64, description="centres of the remainder (B)")
    side: int = Field(32, ge=4, le=1024, description="pixels on a side of the coded square")
    frames: int = Field(8, ge=2, le=1024, multiple_of=2, description="frames of one item")
    frames_per_second: float = Field(8.0, gt=0, le=240, description="frames kept a second")
    patch: int = Field(4, ge=1, le=64, description="pixels on a side of a patch")
    chroma_weight: float = Field(0.6, gt=0, le=4, description="weight of chroma, luma being 1")

    @model_validator(mode="after")
    def _check_side(self) -> "ClipConfig":
        check_patches(self.side, self.patch)
        return self

    @property
    def num_tokens(self) -> int:
        """Codes of one item."""
        return (self.side // self.patch) ** 2 * self.frames // _PAIR


class ClipCodec(Codec[ClipConfig]):
    """Codes of clips; decoding looks at the 3 x 3 patches around each, and before and after it."""

    kind: ClassVar[Kind] = "clip"
    config_type: ClassVar[type[CodecConfig]] = ClipConfig
    offsets: ClassVar[Sequence[tuple[int, ...]]] = [
        *((0, y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)),
        (-1, 0, 0),
        (1, 0, 0),
    ]

    @classmethod
    def vector_width(cls, config: ClipConfig) -> int:
        """Return the width of a grid's vectors."""
        return _PAIR * 3 * config.patch**2

    @classmethod
    def to_grid(cls, item: np.ndarray, config: ClipConfig) -> np.ndarray:
        """Return (T / 2, side / patch, side / patch, D) float32; an odd last frame is doubled."""
        clip = np.concatenate([item, item[-1:]]) if len(item) % _PAIR else item
        luma = to_luma(square_clip(clip, config.side), config.chroma_weight)
        n, p = config.side // config.patch, config.patch
        cut = luma.reshape(-1, _PAIR, n, p, n, p, 3).transpose(0, 2, 4, 1, 3, 5, 6)
        return cut.reshape(len(cut), n, n, -1)

    @classmethod
    def from_grid(cls, grid: np.ndarray, config: ClipConfig) -> np.ndarray:
        """Return (T, side, side, 3) float32 of its patches."""
        n, p = config.side // config.patch, config.patch
        luma = grid.reshape(-1, n, n, _PAIR, p, p, 3).transpose(0, 3, 1, 4, 2, 5, 6)
        return to_rgb(luma.reshape(-1, config.side, config.side, 3), config.chroma_weight)

    @classmethod
    def grid_shape(cls, num_codes: int, config: ClipConfig) -> tuple[int, ...]:
        """Return the grid of a clip of that many codes."""
        n = config.side // config.patch
        return max(1, num_codes // n**2), n, n


def read_clip(path: Path, config: ClipConfig) -> np.ndarray:
    """Read a clip: a file of moving pictures, or a folder of pictures in the order of their names.

    Frames are taken at the config's rate and cut to its square; each picture of a folder is one.

    Returns:
        (T, side, side, 3) float32 in [0, 1], at least one frame.

    Raises:
        DataError: The file is unreadable, truncated, empty, or too large or long.
    """
    kept: list[np.ndarray] = []
    for frame in iter_frames(path, config.frames_per_second):
        if len(kept) == MAX_FRAMES:
            raise DataError(path, f"have at most {MAX_FRAMES} frames", "more", "Cut it.")
        kept.append(square(frame, config.side))
    if not kept:
        raise DataError(path, _MUST, "no frame", _FIX)
    return np.stack(kept)


def iter_frames(path: Path, frames_per_second: float) -> Iterator[np.ndarray]:
    """Yield the frames of a clip, (H, W, 3) float32, as `read_clip` reads them but uncut.

    Raises:
        DataError: The file is unreadable, truncated or too large.
    """
    if path.is_dir():
        yield from map(read_picture, sorted(p for p in path.iterdir() if _is_picture(p)))
        return
    animated = path.suffix.lower() in {".gif", ".webp"}
    frames = _animation_frames(path) if animated else _film_frames(path)
    due = 0.0
    for ends, image in frames:
        if ends <= due + 1e-6:
            continue
        frame = to_array(image)
        while due + 1e-6 < ends:
            yield frame
            due += 1 / frames_per_second


def cut_clip(clip: np.ndarray, frames: int) -> list[np.ndarray]:
    """Cut a clip into items of `frames` frames; a rest is left out unless it is all there is."""
    if len(clip) < frames:
        return [clip]
    return [clip[i : i + frames] for i in range(0, len(clip) - frames + 1, frames)]


def square_clip(clip: np.ndarray, side: int) -> np.ndarray:
    """Return the centre square of every frame, (T, side, side, 3)."""
    if clip.shape[1:3] == (side, side):
        return clip.astype(np.float32, copy=False)
    return np.stack([square(frame, side) for frame in clip])


def animated_bytes(clip: np.ndarray, frames_per_second: float, name: str = "GIF") -> bytes:
    """Return a clip as the bytes of a GIF or WebP ("WEBP") that plays for ever."""
    images = [to_image(frame) for frame in clip]
    buffer = io.BytesIO()
    images[0].save(
        buffer,
        name,
        save_all=True,
        append_images=images[1:],
        duration=round(1000 / frames_per_second),
        loop=0,
    )
    return buffer.getvalue()


def write_animated(path: Path, clip: np.ndarray, frames_per_second: float) -> None:
    """Write a clip as .gif or .webp, whole or not at all.

    Raises:
        DataError: The path ends otherwise.
    """
    name = {".gif": "GIF", ".webp": "WEBP"}.get(path.suffix.lower())
    if name is None:
        raise DataError(path, "end in .gif or .webp", path.suffix, "Rename it.")
    write_whole(path, animated_bytes(clip, frames_per_second, name))


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in PICTURE_SUFFIXES


def _animation_frames(path: Path) -> Iterator[tuple[float, Image.Image]]:
    """Yield each frame with the second at which it ends."""
    ends = 0.0
    with open_image(path, ("GIF", "WEBP"), _MUST, _FIX) as animation:
        for frame in ImageSequence.Iterator(animation):
            frame.load()
            # players show frames that ask for no time for a tenth of a second
            ends += (frame.info.get("duration") or 100) / 1000
            yield ends, frame


def _film_frames(path: Path) -> Iterator[tuple[float, Image.Image]]:
    """Yield each frame with the second at which it ends, from the first one's start."""
    place = f"file:{path.absolute()}"  # else a name with a colon may be taken for an address
    with (
        reading(DataError, path, _MUST, _FIX, av.FFmpegError),
        av.open(place, options=dict(_FILM_OPTIONS), metadata_errors="replace") as film,
    ):
        if not film.streams.video:
            raise DataError(path, _MUST, "no pictures in it", _FIX)
        stream = film.streams.video[0]
        check_pixels(path, (stream.width, stream.height))
        step = 1 / float(stream.average_rate or 25)
        start, count = None, 0
        for frame in film.decode(stream):
            check_pixels(path, (frame.width, frame.height))  # it may change on the way
            start = frame.time if start is None else start
            count += 1
            picture = Image.fromarray(frame.to_ndarray(format="rgb24"))
            yield (frame.time or 0.0) - (start or 0.0) + step, picture
        if count < stream.frames - 2:  # the last frames may be cut off on purpose
            raise DataError(path, _MUST, f"{count} of {stream.frames} frames", _FIX)
