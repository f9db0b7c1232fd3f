"""Figures of a stage as its JSON output."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_figures(path: Path, figures: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write figures as JSON and return them."""
    path.write_text(json.dumps(figures, indent=1, allow_nan=False), encoding="utf-8")
    return figures
