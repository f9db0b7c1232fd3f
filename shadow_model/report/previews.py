"""Decoded pictures of the data, as the sources stage left them, ready to stand inside a page."""

import base64
import io
from dataclasses import dataclass
from pathlib import Path

from shadow_model.data.picture import open_image

PREVIEWS = "preview/*.png"
_LARGEST_PX = 1600


@dataclass(frozen=True)
class Preview:
    """One picture.

    Attributes:
        name: Of its file, without suffix, as words.
        uri: data: URI of a PNG.
        width_px, height_px: As embedded.
    """

    name: str
    uri: str
    width_px: int
    height_px: int


def read_previews(stage: Path, limit: int, pattern: str = PREVIEWS) -> list[Preview]:
    """Read the first `limit` PNG files of a stage that fit a pattern, in order of their names.

    Raises:
        DataError: A file is no picture.
    """
    return [_read(path) for path in sorted(stage.glob(pattern))[:limit]]


def _read(path: Path) -> Preview:
    fix = "Delete the sources stage's folder; the next run builds it again."
    with open_image(path, ("PNG",), "be a PNG picture", fix) as file:
        picture = file.convert("RGB")
    picture.thumbnail((_LARGEST_PX, _LARGEST_PX))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    uri = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    name = path.stem.replace("_", " ").replace("-", " ")
    return Preview(name, uri, picture.width, picture.height)
