"""The training process: reads a job, trains, and tells its parent what happens line by line.

Run as `python -m shadow_model.train.main job.json`. Its output are log lines, and lines
`PROGRESS {"done": 3, "total": 40, "what": "..."}` for the parent's bar. SIGTERM and SIGINT make it
save and leave. Exit codes: 0 done, 3 bad input, 75 stopped after saving (start it again to resume).
"""

import json
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from shadow_model.errors import DataError, ShadowError
from shadow_model.progress import Progress
from shadow_model.train.trainer import TrainJob, train

DONE, BAD_INPUT, STOPPED = 0, 3, 75
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
        job = read_job(Path(arguments[0]))
        outcome = train(job, _reporter(job.arm.train.progress_every_s), stop.is_set)
    except ShadowError as error:
        _log.error("%s: %s", type(error).__name__, error)
        return BAD_INPUT
    return STOPPED if outcome["status"] == "stopped" else DONE


def read_job(path: Path) -> TrainJob:
    """Read a job file.

    Raises:
        DataError: It is absent or not JSON.
        ConfigError: Its fields are not a job.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(path, "be a job in JSON", error, "Write TrainJob.model_dump_json().") from (
            error
        )
    return TrainJob.parse(fields, path)


def _stop_on_signals(stop: threading.Event) -> None:
    def ask(number: int, _frame: FrameType | None) -> None:
        _log.info("%s: saving, then leaving", signal.Signals(number).name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)


def _reporter(every_s: float) -> Progress:
    last = -float("inf")

    def report(done: float, total: float, what: str) -> None:
        nonlocal last
        if done < total and time.monotonic() - last < every_s:
            return
        last = time.monotonic()
        line = json.dumps({"done": done, "total": total, "what": what})
        _log.info("%s%s", PROGRESS_PREFIX, line)

    return report


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
