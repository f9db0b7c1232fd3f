"""The file of an exported memory: five signs a byte, a scale a head, and where n-grams lie in it.

A safetensors file `engram_<i>.safetensors` of the format version below:

    trits         (ceil(cells / 5),) uint8      see trits.py; rows of all heads after one another
    scale         (16,) float32                 what a sign of each head is worth
    primes        (16,) int64                   rows of each head
    multipliers   (3,) int64

and as metadata one JSON text `memory`: its version, head width and the sha256 of the table's
canonical ids as little-endian int64 (one text, because the order of several would change from file
to file). The projections around a memory are weights like all others, and not in it.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from shadow_model.errors import CheckpointError
from shadow_model.nn.engram import Engram
from shadow_model.nn.memory_rows import LearnedRows, PackedRows
from shadow_model.schema import canonical_json
from shadow_model.store import write_whole

VERSION = 1
_STATED = "memory"
_FIX = "Export the memory of this model again."


class _Read(NamedTuple):
    """A file's tensors and what it says of them."""

    tensors: dict[str, Tensor]
    stated: str | None


def export_memory(engram: Engram, canonical: Tensor, path: Path) -> int:
    """Write a memory whole or not at all.

    Args:
        engram: The memory, refreshed.
        canonical: (R,) int64 canonical ids that its n-grams are made of.
        path: Of the file.

    Returns:
        Its bytes.
    """
    rows = engram.rows.packed() if isinstance(engram.rows, LearnedRows) else engram.rows
    tensors = {
        "trits": rows.trits,
        "scale": rows.scale.float(),
        "primes": engram.primes,
        "multipliers": engram.multipliers,
    }
    on_cpu = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    content = safetensors.torch.save(on_cpu, {_STATED: _stated(rows, canonical)})
    write_whole(path, content)
    return len(content)


def load_memory(engram: Engram, canonical: Tensor, path: Path) -> None:
    """Let a memory read its exported rows in place of float ones; nothing learns then.

    Raises:
        CheckpointError: The file cannot be read, or is not of this memory: other primes,
            multipliers, width or canonical ids.
    """
    found = _read(path)
    packed = PackedRows(engram.rows.size)
    expected = {
        "trits": packed.trits,
        "scale": packed.scale,
        "primes": engram.primes,
        "multipliers": engram.multipliers,
    }
    shapes = {name: (tuple(t.shape), t.dtype) for name, t in expected.items()}
    given = {name: (tuple(t.shape), t.dtype) for name, t in found.tensors.items()}
    if shapes != given:
        raise CheckpointError(path, f"hold {shapes}", given, _FIX)
    if (stated := _stated(packed, canonical)) != found.stated:
        raise CheckpointError(path, f"say {stated}", found.stated, _FIX)
    for name in ("primes", "multipliers"):
        if found.tensors[name].tolist() != expected[name].tolist():
            must = f"have the {name} {expected[name].tolist()}"
            raise CheckpointError(path, must, found.tensors[name].tolist(), _FIX)
    packed.trits.copy_(found.tensors["trits"])
    packed.scale.copy_(found.tensors["scale"])
    engram.rows = packed.to(engram.primes.device)


def canonical_digest(canonical: Tensor) -> str:
    """Return the sha256 of canonical ids, (R,) int64, as little-endian bytes."""
    ids = np.ascontiguousarray(canonical.cpu().numpy(), "<i8")
    return hashlib.sha256(ids.tobytes()).hexdigest()


def _stated(rows: PackedRows, canonical: Tensor) -> str:
    width, digest = rows.size.head_width, canonical_digest(canonical)
    return canonical_json({"version": VERSION, "head_width": width, "canonical": digest})


def _read(path: Path) -> _Read:
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return _Read(tensors, (file.metadata() or {}).get(_STATED))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(path, "be a readable safetensors file", error, _FIX) from error
