"""References to pictures, sounds and clips: what is known of them before they are read.

The split and the shards are planned from references alone, so that a folder of a million pictures
is never in memory; arrays are read when a shard is coded. Embedded items are few and come read.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shadow_model.data.captions import Captions
from shadow_model.data.clip import CLIP_SUFFIXES
from shadow_model.data.demo_media import demo_media
from shadow_model.data.files import list_files, relative_name
from shadow_model.data.inputs import KIND_OF_INPUT, SourceInput
from shadow_model.data.media import (
    MEDIA_SUFFIXES,
    MediaConfig,
    MediaItem,
    MediaKind,
    read_media,
)
from shadow_model.data.picture import PICTURE_SUFFIXES, square
from shadow_model.data.sound import HOP, SAMPLE_RATE

_FRAME_SUFFIXES = PICTURE_SUFFIXES - CLIP_SUFFIXES


class ItemRef(NamedTuple):
    """A media item, or a file of them."""

    kind: MediaKind
    caption: str
    group: str
    """Items of one group must stay on one side of the split."""
    tokens: int
    """Codes that it will have; an estimate where it has not been read."""
    path: Path | None
    array: np.ndarray | None


def list_items(source: SourceInput, config: MediaConfig) -> list[ItemRef]:
    """Return the items of an input in their stable order.

    Raises:
        DataError: The folder holds no file of the kind, or its captions cannot be read.
        ConfigError: A package of the embedded data is absent.
    """
    if source.kind == "demo_media":
        items = demo_media(config, source.media)
        return list(islice(_embedded(items, config), source.max_items))
    kind, place = KIND_OF_INPUT[source.kind], source.folder
    captions = Captions(place, source.caption_column)
    tokens = {"picture": config.picture.num_tokens, "clip": config.clip.num_tokens}
    estimate = tokens.get(kind, sound_tokens(round(config.sound.max_seconds * SAMPLE_RATE)))
    paths = islice(media_files(place, kind), source.max_items)
    return [
        ItemRef(kind, captions.of(path), relative_name(path, place), estimate, path, None)
        for path in paths
    ]


def media_files(place: Path, kind: MediaKind) -> list[Path]:
    """Return a folder's files of one kind, sorted; a folder of pictures counts as one clip.

    Raises:
        DataError: There is none.
    """
    if kind != "clip" or not place.is_dir():
        return list_files(place, MEDIA_SUFFIXES[kind])
    films = [path for path in place.rglob("*") if path.suffix.lower() in CLIP_SUFFIXES]
    if not films:
        return sorted({path.parent for path in list_files(place, _FRAME_SUFFIXES)})
    frames = {path.parent for path in place.rglob("*") if path.suffix.lower() in _FRAME_SUFFIXES}
    return sorted({*list_files(place, CLIP_SUFFIXES), *frames})


def read_item(item: ItemRef, config: MediaConfig) -> list[np.ndarray]:
    """Return the arrays of a reference: one, or several of a long file; pictures cut to size.

    Raises:
        DataError: The file cannot be read as what it should be.
    """
    if item.array is not None:
        return [item.array]
    assert item.path is not None, "an item is an array or a file"
    arrays = read_media(item.kind, item.path, config)
    return [square(a, config.picture.side) for a in arrays] if item.kind == "picture" else arrays


def read_sample(items: Sequence[ItemRef], config: MediaConfig, limit: int) -> list[np.ndarray]:
    """Return at most `limit` arrays, evenly spaced over the items, each file giving its share."""
    chosen = [items[i * len(items) // limit] for i in range(limit)] if len(items) > limit else items
    share = -(-limit // max(1, len(chosen)))
    arrays: list[np.ndarray] = []
    for item in chosen:
        found = read_item(item, config)
        taken = min(share, len(found), limit - len(arrays))
        arrays += [found[i * len(found) // taken] for i in range(taken)]
    return arrays


def sound_tokens(samples: int) -> int:
    """Return the codes of a sound of so many samples."""
    return -(-samples // HOP)


def _embedded(items: Iterable[MediaItem], config: MediaConfig) -> Iterator[ItemRef]:
    tokens = {"picture": config.picture.num_tokens, "clip": config.clip.num_tokens}
    for kind, caption, group, array in items:
        size = tokens.get(kind) or sound_tokens(len(array))
        yield ItemRef(kind, caption, group, size, None, array)
