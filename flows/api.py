"""A Prefect API for one flow run, and the end of it.

It is Prefect's own ephemeral server, but in a session of its own (Ctrl-C reaches the flow only,
which must still tell the API how it ended) and ended by the kernel if the flow is killed. Its
thread lives as long as the flow: the kernel ties a child to the thread that started it.
"""

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import prefect
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterId
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogHandler
from prefect.server.api.server import SubprocessASGIServer
from prefect.settings import get_current_settings

from tasks.child import tied_to_parent

DRAIN_S = 60.0
_POLL_S = 0.2
_SERVER = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
}


class OwnServer(SubprocessASGIServer):
    """Prefect's ephemeral server as a process that cannot outlive this one."""

    def _run_uvicorn_command(self) -> subprocess.Popen[Any]:
        app_folder = Path(prefect.__module_path__).parent
        command = [
            *(sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app"),
            *("--app-dir", str(app_folder), "--host", "127.0.0.1", "--port", str(self.port)),
            *("--log-level", "error", "--lifespan", "on"),
        ]
        settings = get_current_settings().to_environment_variables(exclude_unset=True)
        return subprocess.Popen(
            tied_to_parent(command),
            env={**os.environ, **_SERVER, **settings},
            start_new_session=True,
        )


@contextmanager
def own_api() -> Iterator[Callable[[], bool]]:
    """Run an API while the block runs; yields a function that waits until it is up."""
    server, up, over = OwnServer(), threading.Event(), threading.Event()

    def serve() -> None:
        try:
            server.start()
        finally:  # if it failed, the first client tries again and tells why
            up.set()
        over.wait()
        server.stop()

    thread = threading.Thread(target=serve, name="own-api", daemon=True)
    thread.start()
    try:
        yield up.wait
    finally:
        over.set()
        thread.join()


class TaskRunIds(logging.Handler):
    """Collects the ids of the task runs that end, from what Prefect logs of each."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[UUID] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Note the task run of a log record, if it has one."""
        if ident := getattr(record, "task_run_id", None):
            self.ids.add(UUID(str(ident)))


@contextmanager
def recorded_task_runs() -> Iterator[None]:
    """Wait at the end of the block until the API has recorded the end of its task runs.

    It records them from events, with a delay, and drops what it has not yet read when it stops.
    """
    logger, handler = logging.getLogger("prefect.task_runs"), TaskRunIds()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        APILogHandler().flush()
        EventsWorker.drain_all(timeout=DRAIN_S, at_exit=False)
        _drain(handler.ids)


def _drain(ids: set[UUID]) -> None:
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
