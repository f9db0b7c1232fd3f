"""The user's own vectors or codes, and which of their rows belongs to which text piece.

A matrix comes with the tokenizer whose ids number its rows; without one, its rows are numbered by
the old ids themselves. A piece takes the row of the same text; in a float matrix else the mean of
the rows of the pieces that the tokenizer cuts it into.

Shapes: N rows of the file, V text pieces, D dimensions.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from scipy import sparse
from tokenizers import Tokenizer

from shadow_model.arrays import read_npy
from shadow_model.errors import DataError
from shadow_model.reading import parse_json, reading
from shadow_model.table.store import BITS
from shadow_model.table.vocabulary import Vocabulary
from shadow_model.table.words import PieceVectors

_TENSOR_TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BF16": "<u2"}
_SPACE_SIGN = "\u2581"
_BYTE_LEVEL_SPACE = "\u0120"


def read_vectors(path: Path, tensor: str | None = None) -> np.ndarray:
    """Read a float matrix.

    Args:
        path: A .npy, or a .safetensors file (float16, bfloat16, float32 or float64).
        tensor: Name of the matrix in a .safetensors file that holds several.

    Returns:
        (N, D) float32.

    Raises:
        DataError: The file is unreadable, holds no such matrix, or a NaN or an infinity.
    """
    fix = "Name a .npy or .safetensors file with one row of floats a piece."
    raw = _read_tensor(path, tensor) if path.suffix == ".safetensors" else _read_npy(path)
    if raw.ndim != 2 or raw.dtype.kind != "f" or 0 in raw.shape:
        found = f"shape {raw.shape} of {raw.dtype}"
        raise DataError(path, "hold a 2-D matrix of floats", found, fix)
    vectors = raw.astype(np.float32)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise DataError(path, "be finite", f"a NaN or infinity in row {row}", "Correct that row.")
    return vectors


def read_packed(path: Path) -> np.ndarray:
    """Read an existing binary table, most significant bit first in each byte.

    Returns:
        (N, 512) uint8 of 0 and 1.

    Raises:
        DataError: The file is not a .npy of (N, 64) uint8.
    """
    packed = _read_npy(path)
    if packed.ndim != 2 or packed.dtype != np.uint8 or packed.shape[1] != BITS // 8:
        found = f"shape {packed.shape} of {packed.dtype}"
        fix = "Write it by numpy.save(path, numpy.packbits(bits, axis=1))."
        raise DataError(path, f"be (rows, {BITS // 8}) uint8", found, fix)
    return np.unpackbits(packed, axis=1)


def match_vectors(
    vectors: np.ndarray,
    path: Path,
    pieces: Vocabulary | None,
    tokenizer: Path | None,
    vocab: int | None,
) -> PieceVectors:
    """Give each piece its row of a float matrix, or the mean of several.

    Args:
        vectors: (N, D) float32, read from `path`.
        pieces: The text pieces, where they are known.
        tokenizer: tokenizer.json that numbers the rows; None: the old ids do.
        vocab: Text pieces there are; None: as many as rows.

    Raises:
        DataError: The matrix has fewer rows than the tokenizer or the vocabulary has ids.
    """
    if pieces is None or tokenizer is None:
        size = vocab or len(vectors)
        _check_rows(path, len(vectors), size, "old id")
        known = np.asarray(vectors[:size].any(axis=1))
        return PieceVectors(vectors[:size], known, {"row": int(known.sum())})
    model = _read_tokenizer(tokenizer)
    _check_rows(path, len(vectors), _num_ids(model), f"id of {tokenizer}")
    same = _same_text(pieces, model)
    found = np.asarray(_cut(pieces, model, same < 0, len(vectors)) @ vectors)
    found[same >= 0] = vectors[same[same >= 0]]
    known = np.asarray(found.any(axis=1))
    counts = {"row": int((same >= 0).sum()), "mean": int((known & (same < 0)).sum())}
    return PieceVectors(found, known, {**counts, "none": int((~known).sum())})


def match_rows(
    num_rows: int,
    path: Path,
    pieces: Vocabulary | None,
    tokenizer: Path | None,
    vocab: int | None,
) -> np.ndarray:
    """Return which row of a packed table each piece keeps: (V,) int64, -1 for new pieces.

    Without a tokenizer row i belongs to old id i, and later ids are new. No row is given twice.

    Args:
        num_rows: Rows of the packed table (N), read from `path`.
        pieces: The text pieces, where they are known.
        tokenizer: tokenizer.json that numbers the rows; None: the old ids do.
        vocab: Text pieces there are; None: as many as rows.

    Raises:
        DataError: The table has fewer rows than the tokenizer has ids.
    """
    if pieces is None or tokenizer is None:
        rows = np.arange(vocab or num_rows)
        return np.where(rows < num_rows, rows, -1)
    model = _read_tokenizer(tokenizer)
    _check_rows(path, num_rows, _num_ids(model), f"id of {tokenizer}")
    same = _same_text(pieces, model)
    _, first = np.unique(same, return_index=True)
    once = np.full(len(same), -1, np.int64)
    once[first] = same[first]
    return once


def _check_rows(path: Path, rows: int, ids: int, what: str) -> None:
    if rows < ids:
        fix = "Name the matrix and the tokenizer of one model."
        raise DataError(path, f"have a row for every {what}, {ids} in all", f"{rows} rows", fix)


def _num_ids(model: Tokenizer) -> int:
    """Return one more than the highest id: a vocabulary may have gaps."""
    return max(model.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def _same_text(pieces: Vocabulary, model: Tokenizer) -> np.ndarray:
    """Return the tokenizer's id of the same text as each piece, (V,) int64, -1 where none."""
    ids = model.get_vocab(with_added_tokens=False)
    found = np.full(pieces.size, -1, np.int64)
    for piece in np.setdiff1d(np.arange(pieces.size), pieces.byte_ids):
        names = (name for name in _spellings(pieces.piece_text(int(piece))) if name in ids)
        found[piece] = ids[name] if (name := next(names, None)) is not None else -1
    return found


def _spellings(text: str) -> tuple[str, ...]:
    """Return how tokenizers write a piece: with a sign for the space, or ## where there is none."""
    if not text:
        return ()
    if text.startswith(" ") and text.strip():
        bare = text.removeprefix(" ")
        return text.replace(" ", _SPACE_SIGN), text.replace(" ", _BYTE_LEVEL_SPACE), bare
    return text.replace(" ", _SPACE_SIGN), text.replace(" ", _BYTE_LEVEL_SPACE), f"##{text}"


def _cut(
    pieces: Vocabulary, model: Tokenizer, wanted: np.ndarray, num_rows: int
) -> sparse.csr_matrix:
    """Return (V, N) weights: the mean over what the tokenizer cuts each wanted piece into."""
    wanted = wanted.copy()
    wanted[pieces.byte_ids] = False
    numbers = np.flatnonzero(wanted)
    texts = [pieces.piece_text(int(piece)).strip() for piece in numbers]
    coded = model.encode_batch(texts, add_special_tokens=False)
    unknown = {model.token_to_id(name) for name in ("<unk>", "[UNK]", "<|endoftext|>")}
    kept = [[i for i in one.ids if i not in unknown] for one in coded]
    rows = np.repeat(numbers, [len(ids) for ids in kept])
    weights = np.repeat([1 / max(1, len(ids)) for ids in kept], [len(ids) for ids in kept])
    columns = np.array([i for ids in kept for i in ids], np.int64)
    entries = (weights.astype(np.float32), (rows, columns))
    return sparse.csr_matrix(entries, (pieces.size, num_rows))


def _read_tokenizer(path: Path) -> Tokenizer:
    with reading(DataError, path, "be a tokenizer.json", "Name that of the matrix.", Exception):
        return Tokenizer.from_buffer(path.read_bytes())


def _read_npy(path: Path) -> np.ndarray:
    with reading(DataError, path, "be a readable .npy without pickle", "Write it by numpy.save."):
        return read_npy(path)


def _read_tensor(path: Path, tensor: str | None) -> np.ndarray:
    """Read one matrix of a .safetensors file; numpy has no bfloat16, so its bits are widened."""
    header, data_offset = _read_header(path)
    matrices = [n for n, entry in header.items() if len(entry["shape"]) == 2]
    name = tensor or (matrices[0] if len(matrices) == 1 else "")
    entry = header.get(name)
    if entry is None or entry["dtype"] not in _TENSOR_TYPES:
        must = f"hold a float matrix named {tensor!r}" if tensor else "hold exactly one matrix"
        found = {n: (header[n]["dtype"], header[n]["shape"]) for n in sorted(header)[:20]}
        raise DataError(path, must, found, "Name one by vectors_tensor.")
    count, first = math.prod(entry["shape"]), data_offset + entry["data_offsets"][0]
    with reading(DataError, path, "hold the bytes it states", "Copy it again."):
        raw = np.fromfile(path, _TENSOR_TYPES[entry["dtype"]], count, offset=first)
        raw = raw.reshape(entry["shape"])
    return (raw.astype("<u4") << 16).view("<f4") if entry["dtype"] == "BF16" else raw


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the entries of a .safetensors file and where its data begin."""
    fix = "Name a .safetensors file that is whole."
    with reading(
        DataError, path, "be a .safetensors file of the bytes it states", fix, SafetensorError
    ):
        with safe_open(path, "numpy"):  # it checks every shape and offset against the file
            pass
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = parse_json(file.read(size))
    return {name: entry for name, entry in header.items() if name != "__metadata__"}, 8 + size
