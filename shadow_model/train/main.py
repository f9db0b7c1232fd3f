"""The training process: reads a job, trains, and tells its parent what happens line by line.

Run as `python -m shadow_model.train.main job.json`. Its output are log lines, and lines
`PROGRESS {"done": 3, "total": 40, "what": "..."}` for the parent's bar. SIGTERM and SIGINT make it
save and leave. Exit codes: 0 done, 3 bad input, 4 out of memory (the last line says what to
change), 5 an I/O error that may pass, 75 stopped after saving (start it again to resume).
"""

import json
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import torch

from shadow_model.disk import naming_full_disk
from shadow_model.errors import DataError, ShadowError
from shadow_model.reading import load_json, reading
from shadow_model.train.memory import memory_advice
from shadow_model.train.trainer import TrainJob, train
from shadow_model.transient import is_transient

DONE, BAD_INPUT, OUT_OF_MEMORY, IO_FAULT, STOPPED = 0, 3, 4, 5, 75
PROGRESS_PREFIX = "PROGRESS "
_log = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """Train the job of one JSON file.

    Args:
        arguments: The job file's path.

    Returns:
        The exit code.
    """
    handler = logging.StreamHandler(sys.stdout)  # flushed at every record
    handler.setFormatter(logging.Formatter("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    stop = threading.Event()
    _stop_on_signals(stop)
    try:
        return _train(read_job(Path(arguments[0])), stop)
    except ShadowError as error:
        _log.error("%s: %s", type(error).__name__, error)
        return BAD_INPUT
    except OSError as error:
        if not is_transient(error):
            raise
        _log.exception("I/O error that may pass")
        return IO_FAULT


def _train(job: TrainJob, stop: threading.Event) -> int:
    report = _Reporter(job.arm.train.progress_every_s)
    try:
        with naming_full_disk(job.work):
            outcome = train(job, report, stop.is_set)
    except (torch.OutOfMemoryError, MemoryError):
        _log.exception("out of memory")
        _log.error("%s", memory_advice(job.arm, report.done))
        return OUT_OF_MEMORY
    return STOPPED if outcome["status"] == "stopped" else DONE


def read_job(path: Path) -> TrainJob:
    """Read a job file.

    Raises:
        DataError: It is absent or not JSON.
        ConfigError: Its fields are not a job.
    """
    with reading(DataError, path, "be a job in JSON", "Write TrainJob.model_dump_json()."):
        fields = load_json(path)
    return TrainJob.parse(fields, path)


def _stop_on_signals(stop: threading.Event) -> None:
    def ask(number: int, _frame: FrameType | None) -> None:
        _log.info("%s: saving, then leaving", signal.Signals(number).name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)


class _Reporter:
    """A `Progress` that tells the parent, and remembers the updates done."""

    def __init__(self, every_s: float) -> None:
        self.done = 0
        self._every_s, self._last = every_s, -float("inf")

    def __call__(self, done: float, total: float, what: str) -> None:
        self.done = int(done)
        if done < total and time.monotonic() - self._last < self._every_s:
            return
        self._last = time.monotonic()
        line = json.dumps({"done": done, "total": total, "what": what})
        _log.info("%s%s", PROGRESS_PREFIX, line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
