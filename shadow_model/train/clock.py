"""Wall-clock time of a run over all its resumes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Counts seconds in all, and seconds outside of evaluations and saving.

    Args:
        elapsed_s: Seconds of earlier resumes.
        train_s: Those of them spent in updates.
    """

    def __init__(self, elapsed_s: float = 0.0, train_s: float = 0.0) -> None:
        now = time.monotonic()
        self._began, self._train_began = now - elapsed_s, now - train_s

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first start, without the time between resumes."""
        return time.monotonic() - self._began

    @property
    def train_s(self) -> float:
        """Seconds of it in updates."""
        return time.monotonic() - self._train_began

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Count what happens inside as time, but not as time in updates."""
        before = time.monotonic()
        try:
            yield
        finally:
            self._train_began += time.monotonic() - before
