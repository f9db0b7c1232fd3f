"""Room on the disk: asked for before large writes, and named when it runs out."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shadow_model.errors import DataError, ShadowError

_MIB = 1 << 20
_FULL_ERRNO = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FULL_TEXTS = ("No space left on device", "Disk quota exceeded", "disk is full")
_FIX = "Free some space (`shadow gc` tells what may go), or name a folder on another disk."


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
        raise DataError(folder, must, f"{free / _MIB:,.0f} MiB", _FIX)


@contextmanager
def naming_full_disk(folder: Path) -> Iterator[None]:
    """Turn any library's error of a disk that ran full into one that says so.

    Raises:
        DataError: The block failed for want of room below `folder`.
    """
    try:
        yield
    except ShadowError:
        raise
    except Exception as error:  # each library has its own: OSError, sqlite3's, safetensors'
        if not is_full(error, folder):
            raise
        found = f"{shutil.disk_usage(folder).free / _MIB:,.1f} MiB ({error})"
        raise DataError(folder, "have room for what is written", found, _FIX) from error


def is_full(error: BaseException, folder: Path) -> bool:
    """Tell whether an error came from a disk, quota or file size limit that was reached."""
    if isinstance(error, OSError) and error.errno in _FULL_ERRNO:
        return True
    if any(text in str(error) for text in _FULL_TEXTS):
        return True
    # numpy's short write of an array has neither number nor text
    short_write = isinstance(error, OSError) and error.errno is None
    return short_write and shutil.disk_usage(folder).free < _MIB
