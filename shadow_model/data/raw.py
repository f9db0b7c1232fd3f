"""The raw files behind the sources stage, with their digests: where all lineage begins."""

from collections.abc import Callable, Iterator
from pathlib import Path

from shadow_model.data.captions import metadata_files, sidecar
from shadow_model.data.demo_media import DEMO_PACKAGES
from shadow_model.data.demo_text import package_record
from shadow_model.data.documents import PARQUET_SUFFIXES
from shadow_model.data.files import list_files, relative_name
from shadow_model.data.id_layout import FILE_NAME, IdLayout
from shadow_model.data.inputs import KIND_OF_INPUT, SourceInput, SourcesConfig
from shadow_model.data.items import media_files
from shadow_model.data.picture import PICTURE_SUFFIXES
from shadow_model.data.ready_ids import ready_shards
from shadow_model.digest import sha256_file
from shadow_model.receipt import FileRecord


def list_raw(
    config: SourcesConfig, digest: Callable[[Path], str] = sha256_file
) -> list[FileRecord]:
    """Return a record of everything that the stage would read.

    A user's file is named `<lane>/<name>/<path below its folder>`, so that the same files in
    another folder give the same records; an embedded package by its name and version.

    Args:
        config: The stage's config.
        digest: How to get a file's sha256; one that remembers saves reading.

    Raises:
        DataError: A folder is absent or holds no file of its kind.
        ConfigError: A package of the embedded data is not installed.
    """
    records = [package_record(name) for name in embedded_packages(config)]
    for source in config.inputs:
        if source.path is not None:
            prefix = f"{source.lane}/{source.name}"
            records += [
                _record(f"{prefix}/{relative_name(path, source.folder)}", path, digest)
                for path in raw_files(source)
            ]
    if config.pieces is not None:
        records.append(_record(f"pieces/{config.pieces.name}", config.pieces.expanduser(), digest))
    if config.codecs is not None:
        folder = config.codecs.expanduser()
        files = list_files(folder, {".json", ".safetensors"})
        records += [_record(f"codecs/{relative_name(p, folder)}", p, digest) for p in files]
    return records


def embedded_packages(config: SourcesConfig) -> list[str]:
    """Return the names of the distributions that the inputs read, sorted."""
    return sorted({name for source in config.inputs for name in _packages(source)})


def raw_files(source: SourceInput) -> list[Path]:
    """Return the user's files that an input reads, captions included, sorted."""
    if source.kind == "ids":
        return sorted(_id_files(source))
    if source.kind == "text":
        return list_files(source.folder, source.suffixes)
    if source.kind == "parquet":
        return list_files(source.folder, PARQUET_SUFFIXES)
    found = media_files(source.folder, KIND_OF_INPUT[source.kind])
    files = {file for path in found for file in _media_parts(path)}
    return sorted({*files, *metadata_files(source.folder)})


def _id_files(source: SourceInput) -> Iterator[Path]:
    yield from (shard.file for shard in ready_shards(source))
    layout = IdLayout.load(source.folder)
    if layout is not None:
        yield source.folder / FILE_NAME
        if layout.pieces is not None:
            yield source.folder / layout.pieces


def _media_parts(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (p for p in path.iterdir() if p.suffix.lower() in PICTURE_SUFFIXES)
    else:
        yield path
    if sidecar(path).is_file():
        yield sidecar(path)


def _packages(source: SourceInput) -> tuple[str, ...]:
    if source.kind == "demo_text":
        return source.packages
    return DEMO_PACKAGES if source.kind == "demo_media" else ()


def _record(name: str, path: Path, digest: Callable[[Path], str]) -> FileRecord:
    return FileRecord(name=name, sha256=digest(path), bytes=path.stat().st_size)
