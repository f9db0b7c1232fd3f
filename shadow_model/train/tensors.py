"""Weights that came from a file: checked before a model is built to hold them.

A file of a few bytes may describe a model of terabytes, or tensors whose values all lie at one
place; neither gets memory here.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from shadow_model.errors import CheckpointError
from shadow_model.nn.config import ModelConfig

CANONICAL = "canonical"
_WHOLE = (CANONICAL, "multipliers")


def check_tensors(
    tensors: Mapping[str, Tensor], config: ModelConfig, where: object, fix: str
) -> None:
    """Check that tensors hold finite floats, and enough of them for a model of this shape.

    What tells memories of n-grams where to look holds whole numbers.

    Args:
        where: The file, for messages.
        fix: What the user can do.

    Raises:
        CheckpointError: They do not.
    """
    wrong = {name: fault for name, t in tensors.items() if (fault := _fault(name, t))}
    if wrong:
        shown = ", ".join(f"{fault} in {name}" for name, fault in wrong.items())
        raise CheckpointError(where, "hold weights that are whole, finite floats", shown, fix)
    blocks = config.flat or config.prelude + config.core + config.coda
    fewest = blocks * 3 * config.width * config.ff_width
    found = sum(tensor.numel() for tensor in tensors.values())
    if found < fewest:
        must = f"hold the weights of its config, {blocks} blocks of width {config.width}"
        raise CheckpointError(where, must, f"{found:,} values", fix)


def _fault(name: str, value: object) -> str | None:
    if not isinstance(value, Tensor):
        return type(value).__name__
    whole = name.rpartition(".")[2] in _WHOLE
    fits = value.dtype == torch.int64 if whole else value.is_floating_point()
    if value.layout != torch.strided or value.is_quantized or not fits:
        return f"{value.dtype} {value.layout}"
    if value.device.type != "cpu":
        return f"a tensor of the device {value.device}"
    if value.untyped_storage().nbytes() < value.numel() * value.element_size():
        return f"{value.untyped_storage().nbytes()} bytes for {value.numel()} values"
    if (
        name == CANONICAL
        and len(value)
        and not 0 <= int(value.min()) <= int(value.max()) < len(value)
    ):
        return "a row that is none"
    return None if bool(torch.isfinite(value).all()) else "a NaN or infinity"
