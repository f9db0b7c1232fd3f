"""What the memories of n-grams take, said before it is taken and refused where it cannot fit."""

import logging
from pathlib import Path
from typing import NamedTuple

import torch

from shadow_model.errors import ConfigError
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.ngrams import size_for
from shadow_model.nn.trits import packed_bytes

_CELL_BYTES = 4
_COUNT_BYTES = 4
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_CPU = torch.device("cpu")
_log = logging.getLogger(__name__)


class MemoryNeed(NamedTuple):
    """Bytes of all memories of a model together.

    Attributes:
        cells: Values.
        weight_bytes: Rows as floats.
        training_bytes: The same with both moments and the count of each row.
        exported_bytes: Five signs a byte.
    """

    cells: int
    weight_bytes: int
    training_bytes: int
    exported_bytes: int


def memory_need(config: ModelConfig) -> MemoryNeed:
    """Return what the memories of a model take; all zero where it has none."""
    sizes = [
        size_for(config.engram_entries, config.engram_width, number)
        for number in range(config.num_memories)
    ]
    cells = sum(size.cells for size in sizes)
    rows = sum(sum(size.primes) for size in sizes)
    exported = sum(packed_bytes(size.cells) for size in sizes)
    training = 3 * _CELL_BYTES * cells + _COUNT_BYTES * rows
    return MemoryNeed(cells, _CELL_BYTES * cells, training, exported)


def require_weights(config: ModelConfig) -> None:
    """Check that the rows as floats fit into the host's memory, where every model is built.

    Raises:
        ConfigError: They do not.
    """
    _require(memory_need(config).weight_bytes, _CPU, "their rows")


def announce_training(config: ModelConfig, device: torch.device = _CPU) -> None:
    """Say what training the memories will take on a device, before any of it is taken.

    Raises:
        ConfigError: It does not fit there.
    """
    need = memory_need(config)
    if not need.cells:
        return
    _log.info(
        "%d memories of %s rows, %s cells: %s in training with moments, %s exported",
        config.num_memories,
        f"{config.engram_entries:,}",
        f"{need.cells:,}",
        _shown(need.training_bytes),
        _shown(need.exported_bytes),
    )
    _require(need.training_bytes, device, "rows, both moments and counts")


def available_bytes(device: torch.device) -> int | None:
    """Return the memory that a process can still take on a device; None where none says so."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    stated = [_meminfo_bytes(), _cgroup_bytes()]
    return min((number for number in stated if number is not None), default=None)


def _require(needed: int, device: torch.device, what: str) -> None:
    free = available_bytes(device) if needed else None
    if free is not None and needed > free:
        must = f"leave room on {device.type}: {_shown(needed)} for {what}"
        fix = "Lower model.engram_entries or model.engram_width, or name one place only."
        raise ConfigError("engram_entries", must, f"{_shown(free)} free", fix)


def _shown(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.2f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:,.1f} MB"


def _meminfo_bytes() -> int | None:
    if not _MEMINFO.exists():
        return None
    lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def _cgroup_bytes() -> int | None:
    most, used = (_CGROUP / name for name in ("memory.max", "memory.current"))
    if not most.exists() or not used.exists():
        return None
    limit = most.read_text().strip()
    return None if limit == "max" else int(limit) - int(used.read_text())
