"""A folder of the user's own data becoming the inputs of a run, by what lies in it.

    text/  parquet/  pictures/  sounds/  clips/     one source each, where present
    ids/   or  <lane>/<source>/part_*               ready id shards

Without such subfolders the whole folder is searched for the files of each kind.
"""

from pathlib import Path

from shadow_model.data.clip import CLIP_SUFFIXES
from shadow_model.data.inputs import InputKind, SourceInput
from shadow_model.data.picture import PICTURE_SUFFIXES
from shadow_model.data.sound import SOUND_SUFFIXES
from shadow_model.errors import DataError

_SUFFIXES: dict[InputKind, frozenset[str]] = {
    "text": frozenset({".md", ".rst", ".txt"}),
    "parquet": frozenset({".parquet"}),
    "pictures": PICTURE_SUFFIXES - CLIP_SUFFIXES,
    "sounds": SOUND_SUFFIXES,
    "clips": CLIP_SUFFIXES,
}
_LANES: dict[InputKind, str] = {"text": "knowledge", "parquet": "knowledge"}
_MEDIA_LANE = "understanding"


def folder_inputs(folder: Path) -> tuple[SourceInput, ...]:
    """Return one input for each kind of file that a folder holds.

    Raises:
        DataError: It is no folder, or holds nothing that can be read.
    """
    if not folder.is_dir():
        fix = "Name a folder that exists."
        raise DataError(folder, "be a folder of data", "no such folder", fix)
    ids = folder / "ids" if (folder / "ids").is_dir() else folder
    if any(ids.glob("*/*/part_*")):
        return (SourceInput(name="ids", kind="ids", path=ids),)
    named = {kind: folder / kind for kind in _SUFFIXES if (folder / kind).is_dir()}
    places = named or dict.fromkeys(_SUFFIXES, folder)
    found = tuple(
        SourceInput(lane=_LANES.get(kind, _MEDIA_LANE), name=kind, kind=kind, path=place)
        for kind, place in places.items()
        if kind in named or _holds(place, _SUFFIXES[kind])
    )
    if not found:
        must = f"hold subfolders {', '.join(_SUFFIXES)}, or such files, or ready id shards"
        raise DataError(folder, must, "none of them", "Put data there, or name another folder.")
    return found


def _holds(folder: Path, suffixes: frozenset[str]) -> bool:
    return any(path.suffix.lower() in suffixes for path in folder.rglob("*"))
