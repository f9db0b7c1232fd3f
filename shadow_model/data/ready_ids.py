"""Shards of ids that a user already has: found, checked, counted and linked as they are."""

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from shadow_model.data.id_layout import FILE_NAME, IdLayout
from shadow_model.data.inputs import SourceInput, SourcesConfig
from shadow_model.data.shards import SUFFIXES, iter_shard, list_shards
from shadow_model.data.spans import count_kinds
from shadow_model.errors import DataError
from shadow_model.table.layout import Kind


class ReadyShard(NamedTuple):
    """A shard as the user has it."""

    name: str
    """Its path below ids/."""
    file: Path


class ReadyLayout(NamedTuple):
    """What the ids of ready shards are."""

    layout: IdLayout | None
    folder: Path


def ready_shards(source: SourceInput) -> list[ReadyShard]:
    """Return the shards of an input, under the names that decide their split.

    Raises:
        DataError: The folder holds none, neither <lane>/<source>/part_* nor part_*.
    """
    folder = source.folder
    direct = sorted(p for s in SUFFIXES for p in folder.glob(f"part_*{s}") if p.is_file())
    if direct:
        return [ReadyShard(f"{source.lane}/{source.name}/{path.name}", path) for path in direct]
    return [ReadyShard(name, folder / name) for name in list_shards(folder)]


def ready_layout(config: SourcesConfig) -> ReadyLayout | None:
    """Return the one layout of all ready ids, or None where no input is of ready ids.

    Raises:
        DataError: Inputs differ in their layouts, or other inputs stand beside ids without one.
    """
    ready = [source for source in config.inputs if source.kind == "ids"]
    if not ready:
        return None
    found = [ReadyLayout(IdLayout.load(s.folder), s.folder) for s in ready]
    fix = f"Give all of them one vocabulary, and its {FILE_NAME}."
    for other in found[1:]:
        if other.layout != found[0].layout:
            must = f"have the same {FILE_NAME} as {found[0].folder}"
            raise DataError(other.folder, must, "another or none", fix)
    layout, folder = found[0]
    if len(ready) < len(config.inputs) and (layout is None or layout.pieces is None):
        must = f"have a {FILE_NAME} that names a tokenizer, if text or media stand beside the ids"
        raise DataError(folder, must, "no layout" if layout is None else "no pieces", fix)
    return found[0]


def count_ready(shard: ReadyShard, layout: IdLayout | None) -> Counter[Kind]:
    """Read a shard once, chunk by chunk, check its ids and count them by kind.

    Raises:
        DataError: The shard is damaged, or an id is beyond the layout.
    """
    counts: Counter[Kind] = Counter()
    for ids in iter_shard(shard.file):
        if layout is not None and ids.max() >= layout.num_ids:
            must = f"hold ids below {layout.num_ids}, as {FILE_NAME} says"
            raise DataError(shard.file, must, int(ids.max()), "Correct the shard or the layout.")
        counts.update(count_kinds(ids, layout))
    return counts


def link_shards(shards: Sequence[ReadyShard], ids_folder: Path) -> None:
    """Put shards below ids/ without copying them, where the file system allows.

    Raises:
        DataError: Two inputs have a shard of the same name.
    """
    for shard in shards:
        place = ids_folder / shard.name
        if place.exists():
            must = "have a name of its own below ids/"
            raise DataError(shard.file, must, shard.name, "Rename the input's lane or source.")
        place.parent.mkdir(parents=True, exist_ok=True)
        link_file(shard.file.resolve(), place)


def link_file(source: Path, place: Path) -> None:
    """Make a second name of a file, or a copy where it lies on another file system."""
    try:
        os.link(source, place)
    except OSError:
        shutil.copy2(source, place)
