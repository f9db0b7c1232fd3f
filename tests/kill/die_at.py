"""Run a Python module, and die by SIGKILL at its n-th change of the files whose path matches.

`python tests/kill/die_at.py PATTERN NUMBER MODULE [ARGUMENT...]`; with NUMBER 0 it lives, and
writes one line for each change to the file that the environment's DIE_AT_LOG names. Changes are
what Python tells its audit hooks of: files opened for writing or syncing, made, renamed, linked
and removed folders. A death comes before the change.
"""

import os
import re
import runpy
import signal
import sys
from typing import Any

LOG = "DIE_AT_LOG"
CHANGES = frozenset(
    {"open", "os.rename", "os.mkdir", "os.link", "os.remove", "os.rmdir", "shutil.rmtree"}
)


def watch(pattern: str, number: int) -> None:
    """Die at the `number`-th change of a path that the pattern is found in."""
    wanted, log, seen = re.compile(pattern), os.environ.get(LOG), 0

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event not in CHANGES or not wanted.search(str(arguments[0])):
            return
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)
        if log and number == 0:
            os.write(descriptor, f"{event} {arguments[0]}\n".encode())

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if log else -1
    sys.addaudithook(listen)


if __name__ == "__main__":
    _, pattern, number, module, *rest = sys.argv
    watch(pattern, int(number))
    sys.argv = [module, *rest]
    sys.path.insert(0, os.getcwd())
    runpy.run_module(module, run_name="__main__", alter_sys=True)
