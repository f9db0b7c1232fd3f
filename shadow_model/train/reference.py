"""Checkpoints of the reference program: torch.save of a dict with `state` and `cfg`.

They are read without ever running pickled code, and the model is built with that program's own
choices. Going on with its training: see continuation.py. Its files never say how a memory hashes,
so weights of one are taken only where name and shape of each fit the model's.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shadow_model.errors import CheckpointError
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.model import Shadow
from shadow_model.reading import reading
from shadow_model.table.store import Table
from shadow_model.train.tensors import check_tensors

MODEL_CHOICES: Mapping[str, Any] = {
    "integer_products": False,
    "coda_alpha": False,
    "index_teacher": "dense",
    "document_attention": False,
}
"""What the reference chose where the model's defaults differ."""
TRAIN_CHOICES: Mapping[str, Any] = {
    "sampling": "random",
    "copy_alpha": False,
    "rewarm_steps": 0,
    "index_reduction": "mean",
}
"""The same for training."""
_HEADS, _KV_HEADS = 8, 1
_SHAPE = {"d": "width", "prelude": "prelude", "core": "core", "coda": "coda", "flat": "flat"}
_OPTIONAL = {"heads": _HEADS, "kv_heads": _KV_HEADS}
_IGNORED = "canonical"
_MEMORY = "engrams."
_MEMORY_PARTS = ("conv", "multipliers", "rows.weight", "key.weight", "value.weight")
_FIX = "Name a whole checkpoint of the reference program."
_log = logging.getLogger(__name__)


def load_reference(path: Path | str, table: Table) -> Shadow:
    """Build a model from a reference checkpoint, `{tag}_latest.pt` or `{tag}_final.pt`.

    Args:
        path: The file.
        table: The table that it was trained with; the file does not hold it.

    Returns:
        The model on the CPU, in evaluation mode, with the reference's form of products. What the
        file holds beyond weights is named in the log and ignored.

    Raises:
        CheckpointError: The file is no such checkpoint, holds other weights than its config
            implies, or weights of a memory that the model has no place for.
    """
    path = Path(path)
    content = read_content(path)
    config = reference_config(content["cfg"], path)
    check_state(content["state"], config, path)
    config = config.replace(**_memory_fields(content))
    model = Shadow(config, table)
    weights = fitting_weights(content["state"], model, path)
    model.load_state_dict(weights)
    ignored = sorted({*content, *content["state"]} - {"state", "cfg", *weights})
    _log.info("%s: read %d weights, ignored %s", path, len(weights), ", ".join(ignored) or "none")
    return model.eval()


def reference_config(cfg: Mapping[str, Any], where: object) -> ModelConfig:
    """Return the model that a reference checkpoint's `cfg` describes.

    Raises:
        CheckpointError: A field is absent.
        ConfigError: A value is no valid shape.
    """
    missing = [name for name in _SHAPE if name not in cfg]
    if missing:
        raise CheckpointError(where, f"say {list(_SHAPE)} in cfg", f"none of {missing}", _FIX)
    shape = {ours: cfg[theirs] for theirs, ours in _SHAPE.items()}
    heads = {name: cfg.get(name, default) for name, default in _OPTIONAL.items()}
    return ModelConfig.parse({**shape, **heads, **MODEL_CHOICES}, where)


def read_content(path: Path) -> dict[str, Any]:
    """Read a reference checkpoint's dict.

    Raises:
        CheckpointError: The file cannot be read without running code, or lacks state or cfg.
    """
    with reading(CheckpointError, path, "be a checkpoint of plain tensors", _FIX):
        content = torch.load(path, map_location="cpu", weights_only=True)
    parts = {name: isinstance(content, dict) and content.get(name) for name in ("state", "cfg")}
    if not all(isinstance(part, Mapping) for part in parts.values()):
        found = sorted(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise CheckpointError(path, "hold the dicts state and cfg", found, _FIX)
    return dict(content)


def check_state(state: Mapping[Any, Any], config: ModelConfig, where: object) -> None:
    """Check the state of a reference checkpoint before a model is built for it.

    Raises:
        CheckpointError: It holds what are no named, finite floats, or too few for the config.
    """
    unnamed = [name for name in state if not isinstance(name, str)]
    if unnamed:
        raise CheckpointError(where, "name its weights", f"the keys {unnamed[:9]}", _FIX)
    weights = {name: tensor for name, tensor in state.items() if name != _IGNORED}
    check_tensors(weights, config, where, _FIX)


def fitting_weights(state: Mapping[str, Tensor], model: Shadow, where: object) -> dict[str, Tensor]:
    """Return the weights of a reference checkpoint that a model has, float32: all of them.

    Raises:
        CheckpointError: Names or shapes differ; every difference is named.
    """
    expected = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    read = {n: t for n, t in state.items() if n != _IGNORED or n in expected}
    found = {n: tuple(t.shape) for n, t in read.items()}
    wrong = sorted({name for name, _ in expected.items() ^ found.items()})
    shown = ", ".join(f"{n} {found.get(n)} for {expected.get(n)}" for n in wrong)
    if any(name.startswith(_MEMORY) and name in found for name in wrong):
        fix = "Use a checkpoint trained without a memory."
        raise CheckpointError(where, "hold no weights of an unknown memory", shown, fix)
    if wrong:
        raise CheckpointError(where, "hold exactly the weights of its cfg", shown, _FIX)
    return {n: t.float() if t.is_floating_point() else t for n, t in read.items()}


def _memory_fields(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of memories whose weights have the names of ours; {} where none have."""
    state, entries = content["state"], content["cfg"].get("engram_entries")
    names = {name for name in state if name.startswith(_MEMORY)}
    ours = {f"{_MEMORY}{i}.{part}" for i in (0, 1) for part in _MEMORY_PARTS}
    if not entries or names != ours:
        return {}
    width = state[f"{_MEMORY}0.key.weight"].shape[-1]
    return {"engram_entries": entries, "engram_width": width}
