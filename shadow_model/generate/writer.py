"""Rows to what they stand for, and prompts to rows.

Text rows go back to text through the word pieces, codes of a band to a picture, sound or clip
through the codec that stage 0 fitted.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shadow_model.data.clip import ClipConfig, animated_bytes
from shadow_model.data.id_layout import IdLayout
from shadow_model.data.lookup import lookup
from shadow_model.data.media import MediaCodec, MediaKind
from shadow_model.data.picture import png_bytes
from shadow_model.data.sound import HOP, SAMPLE_RATE, wav_bytes
from shadow_model.data.text import Pieces
from shadow_model.errors import DataError
from shadow_model.generate.grammar import SpanLimits
from shadow_model.store import write_whole
from shadow_model.table.layout import BANDS, KINDS, Kind
from shadow_model.table.store import Table

SUFFIXES: Mapping[Kind, str] = {"picture": ".png", "sound": ".wav", "clip": ".gif"}


class Part(NamedTuple):
    """A stretch of a document.

    Attributes:
        kind: What it is.
        text: Of text, with controls by their names; of a span that cannot be decoded, why.
        array: (H, W, 3), (samples,) or (frames, H, W, 3) float32; None of text.
    """

    kind: Kind
    text: str
    array: np.ndarray | None = None


class Writer:
    """Reads prompts and writes documents.

    Args:
        table: Says which row is which piece.
        pieces: The word pieces.
        codecs: Of the kinds that can be decoded.
    """

    def __init__(
        self, table: Table, pieces: Pieces, codecs: Mapping[MediaKind, MediaCodec]
    ) -> None:
        self._table, self._pieces, self._codecs = table, pieces, codecs
        self._layout = table.layout
        self._kinds = self._layout.kind_of_rows()
        ids = IdLayout(vocab=max(pieces.size, int(table.lang_old_ids.max()) + 1))
        self._lookup = lookup(table, ids, pieces)

    @property
    def limits(self) -> dict[Kind, SpanLimits]:
        """What codes make an item of each kind."""
        return {kind: _limits(codec) for kind, codec in self._codecs.items()}

    def prompt(self, text: str, wanted: Kind = "text") -> list[int]:
        """Return the rows that begin a document.

        Args:
            text: Its first words, or the caption of what is wanted; may be empty.
            wanted: What follows them at once.

        Raises:
            DataError: The text cannot be spelt in rows, or there is no codec of the kind.
        """
        rows = [self._layout.marks["sep"]]  # what came before is another document
        if text:
            ids = self._pieces.encode(text).astype(np.uint32)
            mapped = self._lookup.apply(ids)
            if mapped is None:
                must = "be made of pieces that have rows"
                raise DataError("prompt", must, text, "Use other words.")
            rows += mapped.rows.tolist()
        if wanted == "text":
            return rows
        if wanted not in self._codecs:
            found = f"codecs of {', '.join(self._codecs) or 'nothing'}"
            raise DataError("wanted kind", "have a codec", found, f"Train on some {wanted}s.")
        return [*rows, self._layout.control(f"[gen_{BANDS[KINDS.index(wanted) - 1]}]")]

    def parts(self, rows: Sequence[int]) -> list[Part]:
        """Return what rows stand for, stretch by stretch; separators are left out."""
        kept = [row for row in rows if row != self._layout.marks["sep"]]
        runs = groupby(kept, key=lambda row: int(self._kinds[row]))
        return [self._part(KINDS[kind], list(run)) for kind, run in runs]

    def text(self, rows: Sequence[int]) -> str:
        """Return rows as text: pieces spelt out, marks and controls by their names."""
        names = {row: f"[{name}]" for name, row in self._layout.marks.items()}
        first = self._layout.control_offset
        names |= {first + i: name for i, name in enumerate(self._layout.controls)}
        runs = groupby(rows, key=lambda row: row in names)
        old = self._table.lang_old_ids
        return "".join(
            "".join(names[row] for row in run) if named else self._pieces.decode(old[list(run)])
            for named, run in runs
        )

    def _part(self, kind: Kind, rows: list[int]) -> Part:
        if kind == "text":
            return Part(kind, self.text(rows))
        codes = np.array(rows) - self._layout.offsets[BANDS[KINDS.index(kind) - 1]]
        if kind not in self._codecs:
            return Part(kind, f"[{len(rows)} codes of a {kind}; no codec]")
        try:
            return Part(kind, "", self._codecs[kind].decode(codes))
        except DataError as error:
            return Part(kind, f"[no whole {kind}: {error}]")

    def item_bytes(self, kind: Kind, array: np.ndarray) -> bytes:
        """Return an item as a PNG, WAV or GIF file's bytes."""
        if kind == "picture":
            return png_bytes(array)
        if kind == "sound":
            return wav_bytes(array)
        config = self._codecs["clip"].config
        assert isinstance(config, ClipConfig)
        return animated_bytes(array, config.frames_per_second)


def write_document(folder: Path, name: str, parts: Sequence[Part], writer: Writer) -> list[Path]:
    """Write a document: `<name>.txt`, in which `[<file>]` stands for each item's own file.

    Returns:
        All files, the text first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = list(_written(folder, name, parts, writer))
    path = folder / f"{name}.txt"
    write_whole(path, ("".join(words for words, _ in text).strip() + "\n").encode())
    return [path, *(file for _, file in text if file)]


def _written(
    folder: Path, name: str, parts: Sequence[Part], writer: Writer
) -> Iterator[tuple[str, Path | None]]:
    for number, part in enumerate(parts):
        if part.array is None:
            yield part.text, None
            continue
        path = folder / f"{name}_{number}{SUFFIXES[part.kind]}"
        write_whole(path, writer.item_bytes(part.kind, part.array))
        yield f"[{path.name}]", path


def _limits(codec: MediaCodec) -> SpanLimits:
    codes, config = len(codec.codebook), codec.config
    if codec.kind == "picture":
        return SpanLimits(codes, config.num_tokens, config.num_tokens, 1)
    if codec.kind == "sound":
        return SpanLimits(codes, 1, round(config.max_seconds * SAMPLE_RATE) // HOP, 1)
    pair = (config.side // config.patch) ** 2
    return SpanLimits(codes, pair, max(pair, config.num_tokens), pair)
