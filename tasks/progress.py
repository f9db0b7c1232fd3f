"""How a stage's progress reaches the run page and the terminal.

The run page gets a progress artifact, made only once a stage takes longer than a moment. A terminal
listens to the logger `PROGRESS`, whose records carry `label`, `done`, `total` and `what`.
"""

import logging
import time
from uuid import UUID

import httpx
from prefect.artifacts import create_progress_artifact, update_progress_artifact

from tasks.artifacts import artifact_key

PROGRESS = "tasks.progress"
_ARTIFACT_EVERY_S = 3.0
_LINE_EVERY_S = 0.5


class RunProgress:
    """A `Progress` that shows a stage's work in the task run under way.

    Args:
        label: The stage's label, as "1 table".
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._logger = logging.getLogger(PROGRESS)
        self._artifact: UUID | None = None
        self._next_artifact = time.monotonic() + _ARTIFACT_EVERY_S
        self._next_line = 0.0

    def __call__(self, done: float, total: float, what: str) -> None:
        """Show `done` of `total`, both in the same unit; too frequent calls are dropped."""
        now, last = time.monotonic(), done >= total
        if now >= self._next_line or last:
            self._next_line = now + _LINE_EVERY_S
            self._line(done, total, what)
        if now >= self._next_artifact or (last and self._artifact):
            self._next_artifact = now + _ARTIFACT_EVERY_S
            self._publish(100.0 * min(done / total, 1.0) if total else 0.0, what)

    def _line(self, done: float, total: float, what: str) -> None:
        extra = {"label": self._label, "done": done, "total": total, "what": what}
        self._logger.info("%s: %s %g/%g", self._label, what, done, total, extra=extra)

    def _publish(self, percent: float, what: str) -> None:
        key = f"progress-{artifact_key(self._label)}"
        try:
            if self._artifact is None:
                made = create_progress_artifact(progress=percent, key=key, description=what)
                self._artifact = made if isinstance(made, UUID) else None
            else:
                update_progress_artifact(self._artifact, progress=percent, description=what)
        except httpx.HTTPError as error:  # a stage outlives an API that is away for a while
            self._logger.warning("%s: progress could not be shown: %s", self._label, error)
