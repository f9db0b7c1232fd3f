"""Prefect's locks of task keys, as locks that die with their holder (`shadow_model.locking`).

Prefect's own file locks outlive a killed holder for ever.
"""

import asyncio
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any, Self

from prefect import get_run_logger
from prefect.exceptions import MissingContextError
from prefect.locking.protocol import LockManager

from shadow_model.locking import is_locked, try_lock

_POLL_S = 0.1


class FlockLockManager(LockManager):
    """One lock file a key, for threads and processes of one machine.

    Args:
        folder: Where the lock files lie; made on first use.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: dict[str, tuple[int, str]] = {}
        self._guard = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:  # CachePolicy.configure() copies deeply
        return self

    def acquire_lock(
        self,
        key: str,
        holder: str,
        acquire_timeout: float | None = None,
        hold_timeout: float | None = None,  # noqa: ARG002 (the kernel frees what a dead holder held)
    ) -> bool:
        """Take the lock of `key`, waiting `acquire_timeout` seconds at most (None: for ever)."""
        if self.is_lock_holder(key, holder) or self._try(key, holder):
            return True
        _logger().info("Another run builds %s; waiting for it.", key)
        return _poll(lambda: self._try(key, holder), acquire_timeout)

    async def aacquire_lock(
        self,
        key: str,
        holder: str,
        acquire_timeout: float | None = None,
        hold_timeout: float | None = None,
    ) -> bool:
        """Take the lock without blocking the event loop."""
        return await asyncio.to_thread(
            self.acquire_lock, key, holder, acquire_timeout, hold_timeout
        )

    def release_lock(self, key: str, holder: str) -> None:
        """Give the lock back; ValueError unless `holder` has it."""
        with self._guard:
            descriptor, owner = self._held.get(key, (-1, ""))
            if owner != holder:
                raise ValueError(f"no lock of {key} is held by {holder}")
            del self._held[key]
        os.close(descriptor)

    def is_locked(self, key: str) -> bool:
        """Tell whether anyone holds the lock."""
        return is_locked(self._path(key))

    def is_lock_holder(self, key: str, holder: str) -> bool:
        """Tell whether `holder`, in this process, holds the lock."""
        return self._held.get(key, (-1, ""))[1] == holder

    def wait_for_lock(self, key: str, timeout: float | None = None) -> bool:
        """Wait until the lock is free; False after `timeout` seconds."""
        return _poll(lambda: not self.is_locked(key), timeout)

    async def await_for_lock(self, key: str, timeout: float | None = None) -> bool:
        """Wait until the lock is free without blocking the event loop."""
        return await asyncio.to_thread(self.wait_for_lock, key, timeout)

    def _try(self, key: str, holder: str) -> bool:
        descriptor = self._open_locked(key)
        if descriptor is None:
            return False
        with self._guard:
            self._held[key] = (descriptor, holder)
        return True

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.lock"

    def _open_locked(self, key: str) -> int | None:
        self.folder.mkdir(parents=True, exist_ok=True)
        return try_lock(self._path(key))


def _logger() -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger(__name__)


def _poll(ready: Any, timeout_s: float | None) -> bool:
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while not ready():
        if end is not None and time.monotonic() >= end:
            return False
        time.sleep(_POLL_S)
    return True
