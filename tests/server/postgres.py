"""A PostgreSQL server of the machine's package, in a folder of its own, for as long as a test."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.server.conftest import free_port, until


def binaries() -> Path | None:
    """Return the folder of the newest installed PostgreSQL's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextmanager
def postgres() -> Iterator[str]:
    """Start PostgreSQL; yields the URL that Prefect connects to."""
    programs = binaries()
    if programs is None:
        pytest.skip("no PostgreSQL: /usr/lib/postgresql has no programs")
    user = "postgres" if os.getuid() == 0 else None  # it refuses to run as root
    folder, port = Path(tempfile.mkdtemp()), free_port()
    if user:
        shutil.chown(folder, user, pwd.getpwnam(user).pw_gid)
    data = folder / "data"
    initdb = [str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "shadow"]
    subprocess.run(initdb, user=user, cwd=folder, check=True, capture_output=True)
    command = [str(programs / "postgres"), "-D", str(data), "-k", str(folder), "-p", str(port)]
    ready = [str(programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(port), "-q"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, user=user, cwd=folder, stdout=log, stderr=log)
    try:
        until(lambda: subprocess.run(ready, check=False).returncode == 0, 60)
        yield f"postgresql+asyncpg://shadow@127.0.0.1:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)
        shutil.rmtree(folder)
