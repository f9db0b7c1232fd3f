"""Start a Prefect server with the settings that weeks of running need.

`python -m flows.server '{"flow": "server", "parameters": {"host": ..., "port": ...}}'`, as
`flows.launch` starts it. Its database is Prefect's own choice: SQLite in the user's Prefect home,
or what PREFECT_API_DATABASE_CONNECTION_URL names.
"""

import os
import sys
from typing import NoReturn

from flows.telling import run_command

SETTINGS = {
    # the default keeps leases in memory: a restart of the server would end runs that hold one
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
        "prefect.server.concurrency.lease_storage.filesystem"
    ),
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}


def server(host: str, port: int) -> NoReturn:
    """Become a Prefect server; settings of the caller's environment come first."""
    command = [sys.executable, "-m", "prefect", "server", "start"]
    command += ["--host", host, "--port", str(port)]
    os.execve(sys.executable, command, {**SETTINGS, **os.environ})


if __name__ == "__main__":
    sys.exit(run_command({"server": server}, sys.argv[1:]))
