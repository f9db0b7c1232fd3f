"""The server on PostgreSQL, and a nightly check that fails where somebody sees it."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.server.conftest import SHADOW, Server, until
from tests.server.postgres import postgres

pytestmark = pytest.mark.server
RECIPE = """
base = "tiny"

[smoke]
steps = 4
growth_step = 2
windows = 1
loss_fall = 90.0
"""


class Listener(ThreadingHTTPServer):
    """Remembers the bodies of what is posted to it."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        super().__init__(("127.0.0.1", 0), _Remember)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Remember(BaseHTTPRequestHandler):
    server: Listener

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(body.decode())
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        return


@pytest.fixture(scope="module")
def on_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with postgres() as url:
        more = {"PREFECT_API_DATABASE_CONNECTION_URL": url}
        server = Server(tmp_path_factory.mktemp("on_postgres"), more)
        try:
            yield server
        finally:
            server.stop()


def test_a_failed_nightly_check_is_told_in_the_file_and_at_the_url(
    on_postgres: Server, tmp_path: Path
) -> None:
    server, file, listener = on_postgres, tmp_path / "failures.jsonl", Listener()
    server.run(str(SHADOW), "setup", "--failures", str(file))
    url = f"http://127.0.0.1:{listener.server_port}/failed"
    server.run(str(SHADOW), "setup", "--failures", url)
    (tmp_path / "bad.toml").write_text(RECIPE)
    worker = server.worker()
    try:
        given = (f"recipe={tmp_path / 'bad.toml'}", f"store={tmp_path / 'store'}")
        command = ("deployment", "run", "smoke/nightly", "--watch", "-p", given[0], "-p", given[1])
        done = server.prefect(*command, check=False)
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
    assert done.returncode == 1, done.stdout
    (line,) = file.read_text().splitlines()
    told = json.loads(line)
    assert (told["flow"], told["state"]) == ("smoke", "Failed")
    assert "loss falls" in told["message"]
    until(lambda: listener.bodies, 60)
    posted = json.loads(listener.bodies[0])
    assert (posted["flow"], posted["state"], posted["id"]) == ("smoke", "Failed", told["id"])


def test_the_database_is_postgresql(on_postgres: Server) -> None:
    with on_postgres.client() as client:
        assert client.read_flows(), "runs are recorded there"
    assert not list(on_postgres.folder.rglob("prefect.db"))
