"""Pushes in the background: whoever trains offers files, and never waits for the Hub.

At most one push in so many seconds; of offers that come faster the last counts. What is offered is
linked aside at once, so that it may go on to change or vanish. A push that may pass when repeated
is, after longer and longer times; one that is refused is told and given up.
"""

import logging
import os
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from shadow_model.hub.repository import Repository, retry_after_s
from shadow_model.redaction import redacted

BACK_OFF_S = (5.0, 30.0, 120.0, 600.0)
_log = logging.getLogger(__name__)


class PushState(NamedTuple):
    """How pushing went so far.

    Attributes:
        pushed: Commits made.
        failed: Attempts that were not.
        last: What happened last, for a person.
        refused: Whether the Hub said that repeating is of no use.
    """

    pushed: int = 0
    failed: int = 0
    last: str = "nothing pushed yet"
    refused: bool = False


class Pusher:
    """A thread that pushes what was offered last.

    Args:
        repository: Where to.
        staging: Folder for links to what is offered; made, and removed at the end.
        every_s: Seconds between the ends of two pushes, at least.
        back_off_s: Seconds before a failed push is repeated, time after time.
    """

    def __init__(
        self,
        repository: Repository,
        staging: Path,
        every_s: float,
        back_off_s: tuple[float, ...] = BACK_OFF_S,
    ) -> None:
        self.state = PushState()
        self._repository, self._staging = repository, staging
        self._every_s, self._back_off_s = every_s, back_off_s
        self._offer: tuple[dict[str, Path], str] | None = None
        self._number = 0
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._work, name="hub", daemon=True)
        self._thread.start()

    def offer(self, files: Mapping[str, Path], message: str) -> None:
        """Have files pushed some time; a file that is gone already is left out.

        Args:
            files: Path in the repository -> local file.
        """
        with self._changed:
            self._number += 1
            folder = self._staging / str(self._number)
            taken = {name: kept for name, path in files.items() if (kept := _aside(path, folder))}
            self._offer = (taken, message)
            self._changed.notify()

    def finish(self, within_s: float) -> PushState:
        """Push what is left, at once, and end; give up after so many seconds."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(within_s)
        if self._thread.is_alive():
            self._tell(self.state._replace(last=f"given up after {within_s:.0f} s"))
        shutil.rmtree(self._staging, ignore_errors=True)
        return self.state

    def _work(self) -> None:
        failures = 0
        while True:
            with self._changed:
                while self._offer is None and not self._ending:
                    self._changed.wait()
                if (offer := self._offer) is None:
                    return
                self._offer = None
            wait_s = self._push(*offer, failures)
            if wait_s is None:
                return
            failures = failures + 1 if self.state.last.startswith("failed") else 0
            self._pause(wait_s, offer if failures else None)

    def _push(self, files: Mapping[str, Path], message: str, failures: int) -> float | None:
        """Push once; returns after how many seconds to go on, or None: never."""
        state = self.state
        try:
            commit = self._repository.push(files, message)
        except Exception as error:  # whatever it is, it must not reach the training
            wait_s, told = retry_after_s(error), redacted(f"{type(error).__name__}: {error}")
            if wait_s is None:
                refused = state._replace(failed=state.failed + 1, last=f"refused: {told}")
                self._tell(refused._replace(refused=True))
                return None
            self._tell(state._replace(failed=state.failed + 1, last=f"failed: {told}"))
            return max(wait_s, self._back_off_s[min(failures, len(self._back_off_s) - 1)])
        where = self._repository.config.repo
        self._tell(state._replace(pushed=state.pushed + 1, last=f"pushed {commit[:8]} to {where}"))
        return self._every_s

    def _pause(self, seconds: float, failed: tuple[dict[str, Path], str] | None) -> None:
        """Wait; a failed offer is made again unless a newer one has come."""
        end = time.monotonic() + seconds
        with self._changed:
            while (left := end - time.monotonic()) > 0 and not (self._ending and not failed):
                self._changed.wait(left)
            if self._offer is None:
                self._offer = failed

    def _tell(self, state: PushState) -> None:
        self.state = state
        _log.info("hub: %s", state.last.splitlines()[0])


def _aside(path: Path, folder: Path) -> Path | None:
    """Link a file aside, or copy it where the disk cannot; None where it is gone."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{len(list(folder.iterdir()))}-{path.name}"
    try:
        os.link(path, kept)
    except FileNotFoundError:
        return None
    except OSError:
        shutil.copyfile(path, kept)
    return kept
