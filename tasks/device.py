"""One job at a time on a device: a lock of the machine, whatever the store, server or user.

It dies with its holder (`shadow_model.locking`), where a server's concurrency slot would leak.
"""

import logging
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prefect import get_run_logger
from prefect.exceptions import MissingContextError

from shadow_model.locking import try_lock

FOLDER = Path(tempfile.gettempdir()) / "shadow-devices"
_POLL_S = 0.2


@contextmanager
def alone_on(device: str | None, folder: Path | None = None) -> Iterator[None]:
    """Hold a device while the block runs, waiting for it first.

    Args:
        device: Its name, the same in every process; None holds nothing.
        folder: Where the lock files lie; by default a folder for all users of the machine.
    """
    if device is None:
        yield
        return
    descriptor = _wait_for(_lock_file(folder or FOLDER, device), device)
    try:
        yield
    finally:
        os.close(descriptor)


def _wait_for(path: Path, device: str) -> int:
    told = False
    while (descriptor := try_lock(path)) is None:
        if not told:
            _logger().info("Another job uses %s; waiting for it.", device)
            told = True
        time.sleep(_POLL_S)
    return descriptor


def _lock_file(folder: Path, device: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{device}.lock"
    path.touch()
    for place, mode in ((folder, 0o777), (path, 0o666)):
        with suppress(PermissionError):  # another user made it, and opened it to all
            place.chmod(mode)
    return path


def _logger() -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger(__name__)
