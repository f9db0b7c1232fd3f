"""What a page carries inside itself: styles, scripts, and values for the scripts."""

import json
from importlib.resources import files
from typing import Any

from markupsafe import Markup


def page_text(*names: str) -> Markup:
    """Return files of this package, one after another, as they are."""
    folder = files("shadow_model.report")
    return Markup("\n".join((folder / name).read_text(encoding="utf-8") for name in names))


def embedded_json(value: Any) -> Markup:
    """Return JSON that may stand inside of a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))
