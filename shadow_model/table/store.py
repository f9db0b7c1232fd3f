"""The frozen table: 512 bits and a bias a row, read on the way in and on the way out."""

import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from shadow_model.arrays import Archive, open_archive
from shadow_model.digest import sha256_file
from shadow_model.errors import LayoutError
from shadow_model.reading import parse_json, reading
from shadow_model.store import write_whole
from shadow_model.table.layout import BANDS, MARKS, MAX_OLD_IDS, Layout

BITS = 512
_FIELDS = ("bits", "bias", "n_lang", "off", "marks", "ctrl_off", "ctrl_names", "lang_old_ids")
_STATED = ("n_lang", "off", "marks", "ctrl_off", "ctrl_names")
_MAX_STATED_BYTES = 1 << 24
_FIX = "Build the table again, or name another file."


@dataclass(frozen=True)
class Table:
    """A frozen row table.

    Attributes:
        bits: (R, 512) uint8 of 0 and 1; no two rows equal.
        bias: (R,) float32, the log unigram prior of each row.
        layout: Which row means what.
        lang_old_ids: (num_lang,) int64, the old id of each language row.
    """

    bits: np.ndarray
    bias: np.ndarray
    layout: Layout
    lang_old_ids: np.ndarray

    @property
    def num_rows(self) -> int:
        """Rows in all (R)."""
        return len(self.bits)

    def signs(self) -> np.ndarray:
        """Return the codes as the model reads them: (R, 512) float32 of -1 and +1."""
        return self.bits.astype(np.float32) * 2 - 1

    def packed(self) -> np.ndarray:
        """Return the codes as (R, 8) uint64, for popcounts."""
        return np.packbits(self.bits, axis=1).view(np.uint64)

    def save(self, path: Path) -> None:
        """Write table.npz whole or not at all, in the format that `load` reads (no pickle)."""
        layout = self.layout
        content = _archive(
            bits=self.bits.astype(np.uint8),
            bias=self.bias.astype(np.float32),
            n_lang=np.int64(layout.num_lang),
            off=np.array(json.dumps(layout.offsets)),
            marks=np.array(json.dumps(layout.marks)),
            ctrl_off=np.int64(layout.control_offset),
            ctrl_names=np.array(json.dumps(list(layout.controls))),
            lang_old_ids=self.lang_old_ids.astype(np.int64),
        )
        write_whole(path, content)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read and check a table.npz.

        Raises:
            LayoutError: A field is missing, of a wrong shape or type, rows are equal, or the
                layout is not the one its size implies.
        """
        path = Path(path)
        with (
            reading(LayoutError, path, "be a readable table.npz without pickle", _FIX),
            open_archive(path, _FIELDS) as archive,
        ):
            layout = _read_layout(path, _read_stated(archive))
            _check_headers(path, archive, layout)
            bits, bias, old = (archive.read(name) for name in ("bits", "bias", "lang_old_ids"))
        table = cls(bits, bias, layout, old)
        _check_values(path, table)
        return table


def table_digest(path: Path) -> str:
    """Return the digest that bins name to say which table their ids belong to."""
    return sha256_file(path)


def _archive(**fields: Any) -> bytes:
    """Return an .npz without times, at the fastest level: numpy's takes five times as long."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, value in fields.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asanyarray(value), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy")
            archive.writestr(info, member.getbuffer(), zipfile.ZIP_DEFLATED, compresslevel=1)
    return buffer.getvalue()


def _read_stated(archive: Archive) -> dict[str, Any]:
    """Read what says where everything is: single numbers and texts."""
    found = {name: archive.members[name].header for name in _STATED}
    wrong = {n: h.shape for n, h in found.items() if h.shape or h.data_bytes > _MAX_STATED_BYTES}
    if wrong:
        raise ValueError(f"{wrong} where single numbers and short texts must be")
    return {name: archive.read(name).item() for name in _STATED}


def _read_layout(path: Path, fields: dict[str, Any]) -> Layout:
    with reading(LayoutError, path, "state its layout in whole numbers and JSON", _FIX):
        names = tuple(parse_json(fields["ctrl_names"]))
        stated = (parse_json(fields["off"]), parse_json(fields["marks"]))
        layout = Layout(num_lang=fields["n_lang"], controls=names)
        control_offset = int(fields["ctrl_off"])
    if stated != (layout.offsets, layout.marks) or control_offset != layout.control_offset:
        must = f"have bands {BANDS} and markers {MARKS} right after {layout.num_lang} language rows"
        raise LayoutError(path, must, (*stated, control_offset), _FIX)
    return layout


def _check_headers(path: Path, archive: Archive, layout: Layout) -> None:
    rows = layout.num_rows
    for name, shape, dtype in (
        ("bits", (rows, BITS), np.dtype(np.uint8)),
        ("bias", (rows,), np.dtype(np.float32)),
        ("lang_old_ids", (layout.num_lang,), np.dtype(np.int64)),
    ):
        header = archive.members[name].header
        if header.shape != shape or header.dtype != dtype:
            found = f"{header.shape} {header.dtype}"
            raise LayoutError(path, f"have {name} {shape} {dtype}", found, _FIX)


def _check_values(path: Path, table: Table) -> None:
    bits, bias, old = table.bits, table.bias, table.lang_old_ids
    if bits.max(initial=0) > 1:
        raise LayoutError(path, "have bits of 0 and 1", f"{bits.max()}", _FIX)
    if not np.isfinite(bias).all():
        bad = int(np.flatnonzero(~np.isfinite(bias))[0])
        raise LayoutError(path, "have a finite bias", f"{bias[bad]} at row {bad}", _FIX)
    if len(np.unique(old)) != len(old):
        raise LayoutError(path, "name each old id once", "a repeated lang_old_ids", _FIX)
    if old.min() < 0 or old.max() >= MAX_OLD_IDS:
        found = f"lang_old_ids from {old.min()} to {old.max()}"
        raise LayoutError(path, f"name old ids in [0, {MAX_OLD_IDS})", found, _FIX)
    first, second = _equal_rows(bits)
    if first != second:
        raise LayoutError(path, "have no two equal rows", f"rows {first} and {second}", _FIX)


def _equal_rows(bits: np.ndarray) -> tuple[int, int]:
    """Return two rows of equal bits, or (0, 0)."""
    words = np.ascontiguousarray(np.packbits(bits, axis=1)).view(np.uint64)
    order = np.lexsort(words.T)
    ranked = words[order]
    equal = np.flatnonzero((ranked[1:] == ranked[:-1]).all(axis=1))
    return (int(order[equal[0]]), int(order[equal[0] + 1])) if len(equal) else (0, 0)
