"""Checkpoints of the reference program: torch.save of a dict with `state` and `cfg`.

They are read without ever running pickled code. Its products are those of floats, so the model is
built that way. Not covered: continuing its optimiser, step and data position.
"""

import logging
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shadow_model.errors import CheckpointError
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.model import Shadow
from shadow_model.table.store import Table

_HEADS, _KV_HEADS = 8, 1
_SHAPE = {"d": "width", "prelude": "prelude", "core": "core", "coda": "coda", "flat": "flat"}
_OPTIONAL = {"heads": _HEADS, "kv_heads": _KV_HEADS}
_IGNORED = "canonical"
_MEMORY = "engrams."
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
            implies, or weights of a memory, which this model has no place for.
    """
    path = Path(path)
    content = _read(path)
    config = reference_config(content["cfg"], path)
    model = Shadow(config, table)
    weights = _fitting(content["state"], model, path)
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
    return ModelConfig.parse({**shape, **heads, "integer_products": False}, where)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(path, "be a checkpoint of plain tensors", reason, _FIX) from error
    parts = {name: isinstance(content, dict) and content.get(name) for name in ("state", "cfg")}
    if not all(isinstance(part, Mapping) for part in parts.values()):
        found = sorted(content) if isinstance(content, dict) else type(content).__name__
        raise CheckpointError(path, "hold the dicts state and cfg", found, _FIX)
    return dict(content)


def _fitting(state: Mapping[str, Tensor], model: Shadow, where: Path) -> dict[str, Tensor]:
    memory = [name for name in state if name.startswith(_MEMORY)]
    if memory:
        fix = "Use a checkpoint trained without a memory."
        raise CheckpointError(where, "hold no weights of a memory", ", ".join(memory), fix)
    expected = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    found = {n: tuple(t.shape) for n, t in state.items() if n != _IGNORED}
    wrong = sorted({name for name, _ in expected.items() ^ found.items()})
    if wrong:
        shown = ", ".join(f"{n} {found.get(n)} for {expected.get(n)}" for n in wrong)
        raise CheckpointError(where, "hold exactly the weights of its cfg", shown, _FIX)
    return {name: tensor.float() for name, tensor in state.items() if name != _IGNORED}
