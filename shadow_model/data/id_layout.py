"""What an old id is: the `ids/layout.json` beside the shards of the sources stage.

Old ids are text pieces in [0, vocab), and wherever the file says, codes of the three bands,
marks and controls. Without the file every id is a text piece.
"""

import os
from itertools import pairwise
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError, model_validator

from shadow_model.errors import DataError
from shadow_model.reading import load_json, reading
from shadow_model.schema import Schema
from shadow_model.store import write_whole
from shadow_model.table.layout import (
    BAND_ROWS,
    BANDS,
    MARKS,
    MAX_OLD_IDS,
    REQUIRED_CONTROLS,
)

FILE_NAME = "layout.json"
_FIX = "Correct layout.json; the format's version is 1."


class IdLayout(Schema):
    """The places of all old ids; no two of them may meet."""

    version: Literal[1] = 1
    vocab: PositiveInt = Field(description="text pieces: the old ids below this number")
    bands: dict[Literal["image", "audio", "video"], tuple[NonNegativeInt, PositiveInt]] = Field(
        default_factory=dict, description="band -> [first id, number of codes]"
    )
    marks: dict[Literal["image", "audio", "video", "sep"], NonNegativeInt] = Field(
        default_factory=dict, description="start of a picture, sound or clip, document end -> id"
    )
    controls: dict[str, NonNegativeInt] = Field(
        default_factory=dict, description="control name -> id"
    )
    pieces: str | None = Field(
        None, description="tokenizer file beside the layout (.model or tokenizer.json)"
    )

    @model_validator(mode="after")
    def _check_apart(self) -> "IdLayout":
        for band, (_, count) in self.bands.items():
            if count > BAND_ROWS[band]:
                raise ValueError(f"band {band} has {count} codes, a table {BAND_ROWS[band]}")
        spans = sorted([(0, self.vocab, "text"), *self._spans()])
        for (_, end, name), (start, _, other) in pairwise(spans):
            if start < end:
                raise ValueError(f"ids of {name} end at {end}, those of {other} begin at {start}")
        if self.num_ids > MAX_OLD_IDS:
            raise ValueError(f"ids must be below {MAX_OLD_IDS}, the highest is {self.num_ids - 1}")
        if self.pieces is not None and Path(self.pieces).name != self.pieces:
            raise ValueError(f"pieces must be a file name without folders, not {self.pieces!r}")
        return self

    def _spans(self) -> list[tuple[int, int, str]]:
        bands = [(first, first + count, name) for name, (first, count) in self.bands.items()]
        single = [*self.marks.items(), *self.controls.items()]
        return bands + [(id_, id_ + 1, name) for name, id_ in single]

    @property
    def num_ids(self) -> int:
        """One more than the highest old id that means something."""
        return max(end for _, end, _ in [(0, self.vocab, "text"), *self._spans()])

    @classmethod
    def dense(cls, vocab: int, pieces: str | None) -> Self:
        """Return our sources' layout: text pieces, the bands, the marks, the controls, no gaps.

        Args:
            vocab: Number of text pieces.
            pieces: Name of the tokenizer file beside the layout.
        """
        at, bands = vocab, {}
        for band in BANDS:
            bands[band] = (at, BAND_ROWS[band])
            at += BAND_ROWS[band]
        marks = {name: at + i for i, name in enumerate(MARKS)}
        controls = {name: at + len(MARKS) + i for i, name in enumerate(REQUIRED_CONTROLS)}
        fields = {"vocab": vocab, "bands": bands, "marks": marks, "controls": controls}
        return cls.parse({**fields, "pieces": pieces}, FILE_NAME)

    @classmethod
    def load(cls, ids_folder: Path) -> Self | None:
        """Read `layout.json` of an ids folder; None where there is none.

        Raises:
            DataError: It is no JSON, has an unknown version or field, places that meet, or names a
                tokenizer file that is absent.
        """
        path = ids_folder / FILE_NAME
        if not os.path.lexists(path):
            return None
        with reading(DataError, path, "be JSON", _FIX):
            content = load_json(path)
        try:
            layout = cls.model_validate(content)
        except ValidationError as error:
            found = "; ".join(f"{e['loc']}: {e['msg']}" for e in error.errors())
            raise DataError(path, "be a layout of old ids, version 1", found, _FIX) from error
        if layout.pieces is not None and not (ids_folder / layout.pieces).is_file():
            found = f"no file {layout.pieces}"
            raise DataError(path, "name a tokenizer file beside it", found, "Copy it there.")
        return layout

    def save(self, ids_folder: Path) -> None:
        """Write `layout.json` into an ids folder, whole or not at all."""
        write_whole(ids_folder / FILE_NAME, self.model_dump_json(indent=1).encode() + b"\n")
