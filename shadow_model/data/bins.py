"""Bins: streams of row ids, little-endian uint32 without a header, and the packed.json beside them.

A bin is mapped, never read whole. packed.json says how many tokens each holds and which table they
belong to; one without a version is that of an older program, which knows lanes, train and val only.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, NonNegativeInt, ValidationError

from shadow_model.errors import DataError, LayoutError
from shadow_model.reading import load_json, reading
from shadow_model.schema import Schema
from shadow_model.table.store import Table, table_digest

TRAIN, VAL, PACKED = "train.bin", "val.bin", "packed.json"
_TYPE = np.dtype("<u4")
_CHUNK_TOKENS = 1 << 20
_FIX = "Pack the shards again."
_log = logging.getLogger(__name__)


class Packed(Schema):
    """What packed.json says."""

    version: Literal[1] | None = Field(None, description="format; none: an older program's file")
    lanes: tuple[str, ...]
    train: int = Field(ge=1, description="tokens of train.bin")
    val: int = Field(ge=1, description="tokens of val.bin")
    table: str | None = Field(None, description="sha256 of the table.npz that the ids are rows of")
    val_every: int | None = Field(None, description="one shard in this many was held out")
    shuffle_seed: int | None = None
    lane_weights: dict[str, float] = Field(default_factory=dict)
    kinds: dict[str, dict[str, NonNegativeInt]] = Field(
        default_factory=dict, description="bin -> kind -> tokens"
    )
    lane_tokens: dict[str, dict[str, NonNegativeInt]] = Field(
        default_factory=dict, description="bin -> lane -> tokens"
    )
    shards: dict[str, NonNegativeInt] = Field(
        default_factory=dict, description="bin -> shards in it, repeats included"
    )


@dataclass(frozen=True)
class Bin:
    """A stream of row ids.

    Attributes:
        path: Its file.
        ids: (N,) uint32, mapped read-only.
    """

    path: Path
    ids: np.ndarray

    @property
    def num_tokens(self) -> int:
        """Tokens in all (N)."""
        return len(self.ids)

    @classmethod
    def open(cls, path: Path, ctx: int = 1) -> Self:
        """Map a bin.

        Args:
            ctx: Tokens of a window; the bin must hold one more, the last target.

        Raises:
            DataError: The file is absent, no whole number of tokens, or shorter than one window.
        """
        if not path.is_file():
            raise DataError(path, "be a bin", "no such file", "Name the folder of the pack stage.")
        size = path.stat().st_size
        if size % _TYPE.itemsize:
            must = f"hold whole tokens of {_TYPE.itemsize} bytes"
            raise DataError(path, must, f"{size} bytes", f"It is cut off or no bin. {_FIX}")
        stream = cls(path, np.memmap(path, _TYPE, "r") if size else np.empty(0, _TYPE))
        stream.require_window(ctx)
        return stream

    def require_window(self, ctx: int) -> None:
        """Check that a window of `ctx` tokens and the target after them fit; DataError if not."""
        if self.num_tokens < ctx + 1:
            must = f"hold at least one window of {ctx} tokens and the one after them"
            fix = "Pack more data into it (pack.val_every decides the share), or lower ctx."
            raise DataError(self.path, must, f"{self.num_tokens} tokens", fix)

    def require_rows(self, num_rows: int) -> None:
        """Check, in the memory of a chunk, that every id is a row of a table of `num_rows`.

        Raises:
            DataError: One is not; its position is named.
        """
        for start in range(0, self.num_tokens, _CHUNK_TOKENS):
            ids = self.ids[start : start + _CHUNK_TOKENS]
            if ids.max() >= num_rows:
                at = int(np.argmax(ids >= num_rows))
                found = f"{ids[at]} at position {start + at}"
                raise DataError(self.path, f"hold rows below {num_rows}", found, _FIX)


class Bins(NamedTuple):
    """The bins of one pack stage and what is known of them."""

    train: Bin
    val: Bin
    packed: Packed


def open_bins(folder: Path, table_path: Path, ctx: int = 1) -> Bins:
    """Map the bins of a folder and check them against their packed.json and the table.

    Args:
        folder: Holds train.bin, val.bin and packed.json.
        table_path: The table.npz whose rows the ids must be.
        ctx: Tokens of the longest window that will be read.

    Raises:
        DataError: A file is absent, of a wrong size or format, too short, or holds no rows.
        LayoutError: The bins were made with another table.
    """
    packed = read_packed(folder / PACKED)
    num_rows = Table.load(table_path).num_rows
    _check_table(folder, packed, table_path)
    train, val = Bin.open(folder / TRAIN, ctx), Bin.open(folder / VAL, ctx)
    for stream, tokens in ((train, packed.train), (val, packed.val)):
        if stream.num_tokens != tokens:
            must = f"hold {tokens} tokens, as {PACKED} says"
            raise DataError(stream.path, must, stream.num_tokens, _FIX)
        stream.require_rows(num_rows)
    return Bins(train, val, packed)


def read_packed(path: Path) -> Packed:
    """Read a packed.json.

    Raises:
        DataError: It is absent, no JSON, of an unknown version, or lacks a field.
    """
    if not path.exists():
        raise DataError(path, "stand beside the bins", "no such file", _FIX)
    with reading(DataError, path, "be JSON", _FIX):
        content = load_json(path)
    if isinstance(content, Mapping) and "version" not in content:
        names = ("lanes", "train", "val")
        if missing := [name for name in names if name not in content]:
            raise DataError(path, "state lanes, train and val", f"no {missing}", _FIX)
        content = {name: content[name] for name in names}
    try:
        return Packed.model_validate(content)
    except ValidationError as error:
        found = "; ".join(f"{e['loc']} = {e['input']!r}: {e['msg']}" for e in error.errors())
        raise DataError(path, "be a packed.json of version 1", found, _FIX) from error


def _check_table(folder: Path, packed: Packed, table_path: Path) -> None:
    if packed.table is None:
        _log.warning(
            "%s names no table: whether its ids are rows of %s cannot be told, only that they fit",
            folder / PACKED,
            table_path,
        )
        return
    digest = table_digest(table_path)
    if digest != packed.table:
        must = f"be made with the table {table_path} (sha256 {digest[:16]})"
        found = f"those of another (sha256 {packed.table[:16]})"
        raise LayoutError(folder / PACKED, must, found, "Remap and pack again with this table.")
