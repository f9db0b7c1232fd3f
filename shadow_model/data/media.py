"""The three kinds of media under one roof: items, codecs by kind, reading, measuring, showing."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from shadow_model.data.clip import CLIP_SUFFIXES, ClipCodec, ClipConfig, cut_clip, read_clip
from shadow_model.data.codec import Codec, psnr
from shadow_model.data.picture import (
    PICTURE_SUFFIXES,
    PictureCodec,
    PictureConfig,
    png_bytes,
    read_picture,
    square,
)
from shadow_model.data.sound import (
    SOUND_SUFFIXES,
    SoundCodec,
    SoundConfig,
    cut_sound,
    log_mel,
    log_mel_distance_db,
    read_sound,
)
from shadow_model.schema import Schema

MediaKind = Literal["picture", "sound", "clip"]
MEDIA_KINDS: tuple[MediaKind, ...] = ("picture", "sound", "clip")
MEDIA_SUFFIXES: Mapping[MediaKind, frozenset[str]] = {
    "picture": PICTURE_SUFFIXES,
    "sound": SOUND_SUFFIXES,
    "clip": CLIP_SUFFIXES,
}
"""Endings of the files that `read_media` reads, by kind."""
MediaCodec = Codec[Any]
_GAP = 2
_BLACK, _WHITE = np.log(1e-4), np.log(1e2)
"""Log-mels shown as black and white."""


class MediaItem(NamedTuple):
    """One picture, sound or clip and its caption."""

    kind: MediaKind
    caption: str
    group: str
    """Items of one group show one thing and must stay on one side of the held-out split."""
    array: np.ndarray
    """(H, W, 3), (samples,) or (frames, side, side, 3) float32."""


class MediaConfig(Schema):
    """The codecs of all three kinds."""

    picture: PictureConfig = Field(PictureConfig(), description="the picture codec")
    sound: SoundConfig = Field(SoundConfig(), description="the sound codec")
    clip: ClipConfig = Field(ClipConfig(), description="the clip codec")


def fit_codec(
    kind: MediaKind, items: Sequence[np.ndarray], config: MediaConfig, seed: int
) -> MediaCodec:
    """Fit the codec of one kind to items, a lazy sequence if need be (see `Codec.fit`)."""
    if kind == "picture":
        return PictureCodec.fit(items, config.picture, seed)
    if kind == "sound":
        return SoundCodec.fit(items, config.sound, seed)
    return ClipCodec.fit(items, config.clip, seed)


def load_codecs(folder: Path) -> dict[MediaKind, MediaCodec]:
    """Load the codecs that a folder holds; kinds that it does not hold are left out.

    Raises:
        DataError: A codec is damaged or of another format version.
    """
    loaders: Mapping[MediaKind, Callable[[Path], MediaCodec]] = {
        "picture": PictureCodec.load,
        "sound": SoundCodec.load,
        "clip": ClipCodec.load,
    }
    present = [kind for kind in MEDIA_KINDS if (folder / f"{kind}.json").exists()]
    return {kind: loaders[kind](folder) for kind in present}


def read_media(kind: MediaKind, path: Path, config: MediaConfig) -> list[np.ndarray]:
    """Read a file as items: a picture is one, a long sound or clip is cut into several.

    Raises:
        DataError: The file cannot be read as one of this kind.
    """
    if kind == "picture":
        return [read_picture(path)]
    if kind == "sound":
        return cut_sound(read_sound(path), config.sound.max_seconds)
    return cut_clip(read_clip(path, config.clip), config.clip.frames)


def measure(codec: MediaCodec, items: Sequence[np.ndarray]) -> dict[str, float]:
    """Say how near decoded items come to their originals, as means over items.

    Returns:
        `items` and, for pictures and clips, `psnr_db`; for sounds `log_mel_distance_db` of the
        codes and `log_mel_distance_wave_db` of the wave that Griffin-Lim makes of them.
    """
    scores = [_score(codec, item) for item in items]
    names = scores[0] if scores else {}
    means = {name: round(float(np.mean([s[name] for s in scores])), 3) for name in names}
    return {"items": len(items), **means}


def contact_sheet(
    originals: Sequence[np.ndarray], decoded: Sequence[np.ndarray], scale: int = 2, columns: int = 8
) -> bytes:
    """Show originals above what was decoded of them.

    Args:
        originals: Pictures, clips (three of their frames are shown) or sounds (their log-mels).
        decoded: The same, decoded; shapes may differ.
        scale: Pixels on a side that one pixel becomes.
        columns: Items side by side, at most.

    Returns:
        The bytes of a PNG file.
    """
    pairs = [_pair(a, b) for a, b in zip(originals, decoded, strict=True)]
    height, width = (max(p.shape[axis] for p in pairs) for axis in (0, 1))
    rows = [pairs[i : i + columns] for i in range(0, len(pairs), columns)]
    sheet = np.ones((len(rows) * (height + 3 * _GAP), len(rows[0]) * (width + _GAP), 3), np.float32)
    for y, row in enumerate(rows):
        for x, pair in enumerate(row):
            top, left = y * (height + 3 * _GAP), x * (width + _GAP)
            sheet[top : top + pair.shape[0], left : left + pair.shape[1]] = pair
    return png_bytes(sheet.repeat(scale, 0).repeat(scale, 1))


def _score(codec: MediaCodec, item: np.ndarray) -> dict[str, float]:
    codes = codec.encode(item)
    if isinstance(codec, SoundCodec):
        frames = codec.to_grid(item, codec.config)
        wave = log_mel(codec.decode(codes))
        return {
            "log_mel_distance_db": log_mel_distance_db(frames, codec.decode_log_mel(codes)),
            "log_mel_distance_wave_db": log_mel_distance_db(frames, wave),
        }
    fitted = codec.from_grid(codec.to_grid(item, codec.config), codec.config)
    return {"psnr_db": psnr(fitted, codec.decode(codes))}


def _pair(original: np.ndarray, decoded: np.ndarray) -> np.ndarray:
    views = [_view(original, decoded), _view(decoded, decoded)]
    width = max(view.shape[1] for view in views)
    padded = [
        np.pad(v, ((0, _GAP), (0, width - v.shape[1]), (0, 0)), constant_values=1) for v in views
    ]
    return np.concatenate(padded)


def _view(item: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return an item as a picture, of the size of the decoded one."""
    if item.ndim == 1:
        frames = (log_mel(item).T[::-1] - _BLACK) / (_WHITE - _BLACK)
        return np.repeat(np.clip(frames, 0, 1)[..., None], 3, axis=2).astype(np.float32)
    if item.ndim == 3:
        return square(item, like.shape[-2])
    shown = [item[i * (len(item) - 1) // 2] for i in range(3)]
    return np.concatenate([square(frame, like.shape[-2]) for frame in shown], axis=1)
