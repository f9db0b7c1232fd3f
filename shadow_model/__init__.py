"""Shadow: a small looped language model, ternary in its weights, over a frozen table of codes.

The names below load when first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shadow_model.export import load_export
    from shadow_model.nn.model import Shadow
    from shadow_model.nn.readout import Readout
    from shadow_model.table.store import Table
    from shadow_model.train.checkpoint import load_checkpoint, load_reference

_HOMES = {
    "Readout": "shadow_model.nn.readout",
    "Shadow": "shadow_model.nn.model",
    "Table": "shadow_model.table.store",
    "load_checkpoint": "shadow_model.train.checkpoint",
    "load_export": "shadow_model.export",
    "load_reference": "shadow_model.train.checkpoint",
}

__all__ = ["Readout", "Shadow", "Table", "load_checkpoint", "load_export", "load_reference"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
