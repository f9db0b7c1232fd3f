"""Samples that one can play: sounds and clips of the data and of the model, inside the page."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shadow_model.errors import DataError

_TYPES = {"sound": ("wav", "audio/wav"), "clip": ("gif", "image/gif")}
ORIGINS = ("data", "model")
_MAX_BYTES = 4 << 20
"""Of one file: a page is to be opened on a phone, too."""


@dataclass(frozen=True)
class Playable:
    """One sample of a kind that plays.

    Attributes:
        begins: What the data and the model went on from.
        uris: Origin -> data: URI; an origin that made no whole item has none.
    """

    kind: str
    begins: str
    uris: Mapping[str, str]


def read_playables(samples: Path, told: Sequence[Mapping[str, Any]]) -> list[Playable]:
    """Read the sounds and clips among an export's samples.

    Args:
        samples: Folder of the samples' files.
        told: What samples.json says of each, in order.

    Raises:
        DataError: A file is larger than any sample is.
    """
    found = []
    for number, sample in enumerate(told):
        if (kind := str(sample.get("kind"))) in _TYPES:
            stem = samples / f"{kind}_{number}"
            uris = {origin: uri for origin in ORIGINS if (uri := _uri(stem, origin, kind))}
            found.append(Playable(kind, str(sample.get("begins", "")), uris))
    return [one for one in found if one.uris]


def _uri(stem: Path, origin: str, kind: str) -> str | None:
    suffix, mime = _TYPES[kind]
    paths = sorted(stem.parent.glob(f"{stem.name}_{origin}_*.{suffix}"))
    if not paths:
        return None
    size = paths[0].stat().st_size
    if size > _MAX_BYTES:
        fix = "Delete the export stage's folder; the next run builds it again."
        raise DataError(paths[0], f"hold at most {_MAX_BYTES:,} bytes", f"{size:,}", fix)
    return f"data:{mime};base64,{base64.b64encode(paths[0].read_bytes()).decode()}"
