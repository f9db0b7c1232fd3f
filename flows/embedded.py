"""The embedded default: a flow with a Prefect API of its own that ends with it.

`python -m flows.embedded '{"flow": "proof", "parameters": {...}}'`, as `flows.launch` starts it.
The API starts while torch is imported, and stops only once all task runs are recorded: it would
drop the last ones otherwise.
Exit codes: 0 done, 1 failed, 2 bad input or config, 130 and 143 stopped by SIGINT and SIGTERM.
"""

import importlib
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterId
from prefect.exceptions import TerminationSignal
from prefect.logging.handlers import APILogHandler
from prefect.server.api.server import SubprocessASGIServer
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from flows.terminal import shown_progress
from shadow_model.errors import ShadowError
from shadow_model.receipt import Receipt
from shadow_model.store import Store

FLOWS = {
    "proof": "flows.proof",
    "control": "flows.control",
    "prepare": "flows.prepare",
    "smoke": "flows.checks",
    "speed": "flows.checks",
}
FAILED, BAD_INPUT = 1, 2
DRAIN_S = 60.0
_POLL_S = 0.2


class TaskRunIds(logging.Handler):
    """Collects the ids of the task runs that end, from what Prefect logs of each."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[UUID] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Note the task run of a log record, if it has one."""
        if ident := getattr(record, "task_run_id", None):
            self.ids.add(UUID(str(ident)))


def main(arguments: list[str]) -> int:
    """Run a flow.

    Args:
        arguments: One JSON object with `flow` and `parameters`.

    Returns:
        The exit code.
    """
    job = json.loads(arguments[0])
    try:
        with shown_progress(), temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            outcome = run_embedded(job["flow"], job["parameters"])
    except TerminationSignal as stop:
        return 128 + stop.signal
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    if isinstance(outcome, ShadowError):
        _tell_error(outcome)
        return BAD_INPUT
    if not isinstance(outcome, Receipt):
        return FAILED  # Prefect has logged the traceback
    _tell_outcome(Path(job["parameters"]["store"]), outcome)
    return 0


def run_embedded(flow: str, parameters: Mapping[str, Any]) -> Receipt | BaseException:
    """Run a flow by name with an API of its own; all its task runs are recorded afterwards.

    Returns:
        What the flow returns, or the exception that it failed with.
    """
    with _api() as wait_for_api:
        function = getattr(importlib.import_module(FLOWS[flow]), flow)
        wait_for_api()
        with _recorded_task_runs():
            state = function(**parameters, return_state=True)
            outcome = state.result(raise_on_failure=False)
    assert isinstance(outcome, Receipt | BaseException)
    return outcome


@contextmanager
def _api() -> Iterator[Callable[[], None]]:
    server = SubprocessASGIServer()
    starting = threading.Thread(target=server.start, daemon=True)
    starting.start()
    try:
        yield starting.join
    finally:
        starting.join()
        server.stop()


@contextmanager
def _recorded_task_runs() -> Iterator[None]:
    logger, handler = logging.getLogger("prefect.task_runs"), TaskRunIds()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        _drain(handler.ids)


def _drain(ids: set[UUID]) -> None:
    APILogHandler().flush()
    end = time.monotonic() + DRAIN_S
    with get_client(sync_client=True) as client:
        while missing := ids - _ended(client, ids):
            if time.monotonic() > end:
                logging.getLogger("prefect").warning("%d task runs not recorded", len(missing))
                return
            time.sleep(_POLL_S)


def _ended(client: Any, ids: set[UUID]) -> set[UUID]:
    wanted = TaskRunFilter(id=TaskRunFilterId(any_=list(ids)))
    runs = client.read_task_runs(task_run_filter=wanted)
    return {run.id for run in runs if run.state and run.state.is_final()}


def _tell_error(error: ShadowError) -> None:
    lines = [
        f"{type(error).__name__}: {error.where}",
        f"  must {error.must}",
        f"  found {error.found}",
        f"  {error.fix}",
    ]
    sys.stderr.write("\n".join(lines) + "\n")


def _tell_outcome(store: Path, receipt: Receipt) -> None:
    folder = Store(store).folder(receipt)
    page = folder / "report.html"
    sys.stdout.write(f"{page if page.exists() else folder}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
