"""What the sources stage is told: the inputs, lane by lane, and how they become shards."""

from collections import Counter
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from shadow_model.data.demo_text import DEMO_TEXT_PACKAGES
from shadow_model.data.media import MEDIA_KINDS, MediaConfig, MediaKind
from shadow_model.schema import NOT_IN_KEY, Schema

InputKind = Literal[
    "demo_text", "demo_media", "text", "parquet", "pictures", "sounds", "clips", "ids"
]
KIND_OF_INPUT: dict[InputKind, MediaKind] = {
    "pictures": "picture",
    "sounds": "sound",
    "clips": "clip",
}
_EMBEDDED = ("demo_text", "demo_media")
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class SourceInput(Schema):
    """One source of one lane: the embedded data, a folder or file of the user's, or ready ids."""

    lane: str = Field("knowledge", pattern=_NAME, max_length=64, description="part of the corpus")
    name: str = Field(
        pattern=_NAME, max_length=64, description="the source's folder below its lane"
    )
    kind: InputKind = Field(
        description="demo_text, demo_media: embedded in installed packages; text: folder of UTF-8 "
        "files; parquet: files with a text column; pictures, sounds, clips: folders; ids: shards "
        "<lane>/<source>/part_* (their own lanes count), or part_* directly"
    )
    path: Path | None = Field(
        None, description="folder or file; none for embedded data", json_schema_extra=NOT_IN_KEY
    )
    packages: tuple[str, ...] = Field(
        DEMO_TEXT_PACKAGES, min_length=1, description="demo_text: distributions to read"
    )
    media: tuple[MediaKind, ...] = Field(
        MEDIA_KINDS, min_length=1, description="demo_media: kinds to take"
    )
    suffixes: tuple[str, ...] = Field(
        (".md", ".rst", ".txt"), min_length=1, description="text: endings of the files to read"
    )
    text_column: str = Field("text", min_length=1, description="parquet: the column to read")
    caption_column: str = Field(
        "text", min_length=1, description="media: field of metadata.jsonl or .csv with the caption"
    )
    document_bytes: int = Field(
        1 << 20, ge=1 << 10, le=1 << 28, description="text: longer files become several documents"
    )
    max_bytes: int | None = Field(
        None, ge=1 << 10, description="text is taken up to this many bytes; none: all"
    )
    max_items: int | None = Field(
        None, ge=1, description="documents or media items are taken up to this many; none: all"
    )
    shard_tokens: int | None = Field(
        None, ge=256, le=1 << 28, description="tokens a shard, about; none: the stage's"
    )

    @model_validator(mode="after")
    def _check_path(self) -> "SourceInput":
        if (self.path is None) != (self.kind in _EMBEDDED):
            needed = "has no" if self.kind in _EMBEDDED else "needs a"
            raise ValueError(f"an input of kind {self.kind} {needed} path; found {self.path}")
        return self

    @property
    def folder(self) -> Path:
        """The user's folder or file."""
        assert self.path is not None, "embedded inputs have no path"
        return self.path.expanduser()

    @property
    def is_text(self) -> bool:
        """Whether the input is documents of text."""
        return self.kind in ("demo_text", "text", "parquet")


class SourcesConfig(Schema):
    """Raw material to shards of old ids."""

    inputs: tuple[SourceInput, ...] = Field(min_length=1, description="sources, in order")
    num_pieces: int = Field(
        8192, ge=320, le=1 << 20, description="text pieces to learn, the 256 bytes included"
    )
    pieces: Path | None = Field(
        None,
        description="a tokenizer to use as it is (.model or tokenizer.json)",
        json_schema_extra=NOT_IN_KEY,
    )
    piece_sample_bytes: int = Field(
        32 << 20, ge=1 << 10, le=1 << 32, description="training text that pieces are learnt from"
    )
    shard_tokens: int = Field(
        1 << 20, ge=256, le=1 << 28, description="tokens a shard, about; documents are never cut"
    )
    val_every: int = Field(
        100, ge=2, le=1 << 20, description="one shard in so many is held out, by its name's crc32"
    )
    deduplicate: bool = Field(
        True, description="leave out documents seen before (100 bytes of memory a document)"
    )
    media: MediaConfig = Field(MediaConfig(), description="codecs of pictures, sounds and clips")
    codecs: Path | None = Field(
        None,
        description="a folder of fitted codecs to use as they are; other kinds are fitted",
        json_schema_extra=NOT_IN_KEY,
    )
    quality_items: int = Field(
        32, ge=1, le=10_000, description="held-out items a kind that the codecs are measured on"
    )
    seed: int = Field(0, ge=0, description="seed of the codecs' fits")

    @model_validator(mode="after")
    def _check_names(self) -> "SourcesConfig":
        places = Counter(f"{one.lane}/{one.name}" for one in self.inputs)
        twice = [place for place, count in places.items() if count > 1]
        if twice:
            raise ValueError(f"each lane/name must stand once; found twice: {', '.join(twice)}")
        return self

    def shard_size(self, source: SourceInput) -> int:
        """Return the tokens that a shard of this input should have, about."""
        return source.shard_tokens or self.shard_tokens
