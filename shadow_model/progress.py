"""How long work tells that it moves on, without knowing who listens."""

from typing import Protocol


class Progress(Protocol):
    """Called with work done and work in all, in the same unit, and a few words on what it is."""

    def __call__(self, done: float, total: float, what: str) -> None: ...


def silent(done: float, total: float, what: str) -> None:
    """Listen to nothing."""
