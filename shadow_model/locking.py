"""Locks that die with their holder: flock(2), which the kernel drops when a process ends.

A lock file stays behind on purpose (removing one that another process is opening would let two
holders in); an unheld file means nothing.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def try_lock(path: Path) -> int | None:
    """Lock a file, made if absent.

    Returns:
        A descriptor, to be closed to give the lock back; None while another holds it.
    """
    return _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(path: Path) -> bool:
    """Tell whether anyone holds the lock of a path; makes no file."""
    if not path.exists():
        return False
    if (descriptor := try_lock(path)) is None:
        return True
    os.close(descriptor)
    return False


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file while the block runs, waiting for it first."""
    descriptor = _lock(path, fcntl.LOCK_EX)
    assert descriptor is not None
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(path: Path, how: int) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
