"""Writing large files: room for them is checked first, and they appear whole or not at all."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shadow_model.errors import DataError

_MIB = 1 << 20


def require_space(folder: Path, needed_bytes: int) -> None:
    """Check that a folder's disk has room for what is about to be written.

    Args:
        folder: Where it will be written; made if absent.
        needed_bytes: An upper bound, as near as the inputs tell it.

    Raises:
        DataError: Fewer bytes are free.
    """
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        must = f"have {needed_bytes / _MIB:,.0f} MiB free"
        fix = "Free some space, or name a folder on another disk."
        raise DataError(folder, must, f"{free / _MIB:,.0f} MiB", fix)


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
