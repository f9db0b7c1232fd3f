"""A real Prefect server, set up by our own commands, and workers as processes."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_URL, temporary_settings

from tasks.child import marked_processes

ROOT = Path(__file__).parents[2]
SHADOW = Path(sys.executable).with_name("shadow")
MARK = "SHADOW_TEST_SERVER"
Until = Callable[[Callable[[], object], float], None]


def until(what: Callable[[], object], within_s: float = 120) -> None:
    """Wait until something holds."""
    end = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < end, f"{what} did not hold within {within_s} s"
        time.sleep(0.05)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Server:
    """A Prefect server in a folder of its own.

    Args:
        folder: Its Prefect home and logs.
        more: Environment variables beside the caller's.
    """

    def __init__(self, folder: Path, more: Mapping[str, str]) -> None:
        self.folder, self.port = folder, free_port()
        own = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {
            **own,
            **more,
            "PREFECT_HOME": str(folder / "home"),
            "PREFECT_API_URL": f"{self.url}/api",
            "SHADOW_ROOT": str(ROOT),
            "OMP_NUM_THREADS": "1",
            MARK: str(folder),
        }
        self._process = self.start("server", str(SHADOW), "server", "--port", str(self.port))
        until(self._is_up)

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own; its output goes to a log in the folder."""
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command against the server."""
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done

    def prefect(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `prefect`."""
        return self.run(sys.executable, "-m", "prefect", *arguments, check=check)

    def worker(self) -> subprocess.Popen[bytes]:
        """Start a worker of the pool `cpu`."""
        command = (sys.executable, "-m", "prefect", "worker", "start", "--pool", "cpu")
        return self.start("worker", *command)

    def client(self) -> SyncPrefectClient:
        """Return a client of the server."""
        with temporary_settings({PREFECT_API_URL: self.environment["PREFECT_API_URL"]}):
            return get_client(sync_client=True)

    def flow_run(self, name: str) -> FlowRun:
        """Return the newest flow run of a name."""
        wanted = FlowRunFilter(name=FlowRunFilterName(any_=[name]))
        with self.client() as client:
            runs = client.read_flow_runs(flow_run_filter=wanted)
        return max(runs, key=lambda run: str(run.created))

    def processes(self, *words: str) -> list[int]:
        """Return the processes of this server's workers and runs whose command has the words."""
        found = []
        for pid in marked_processes(f"{MARK}={self.folder}"):
            command = Path(f"/proc/{pid}/cmdline")
            if command.exists() and all(w.encode() in command.read_bytes() for w in words):
                found.append(pid)
        return found

    def stop(self) -> None:
        """Kill all that was started."""
        for pid in marked_processes(f"{MARK}={self.folder}"):
            os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def _is_up(self) -> bool:
        assert self._process.poll() is None, (self.folder / "server.log").read_text()
        try:
            with urlopen(f"{self.url}/api/health") as answer:
                return bool(answer.status == 200)
        except (URLError, ConnectionError):
            return False


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on SQLite, set up once: runs without a heartbeat are crashed after 35 s."""
    server = Server(tmp_path_factory.mktemp("server"), {})
    try:
        failures = str(server.folder / "failures.jsonl")
        server.run(str(SHADOW), "setup", "--crashed-after", "35", "--failures", failures)
        yield server
    finally:
        server.stop()
