"""Start a program that ends with its parent: `python die_with_parent.py PARENT_PID PROGRAM...`

A separate step between fork and exec, because Python's own hook there (preexec_fn) may deadlock in
a process with threads. The kernel sees to the end of it, on Linux only; elsewhere the program runs
without this safety.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Become `command`, to be sent SIGTERM when process `parent` ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent:  # it ended before the line above
        sys.exit(128 + signal.SIGTERM)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
