"""Writing large files: room for them is checked first, and they appear whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shadow_model.disk import require_space

__all__ = ["require_space", "whole_file"]


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes `path` at the end; an exception leaves nothing behind.

    The data are not forced to the disk here: the store does that for every file that it publishes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
