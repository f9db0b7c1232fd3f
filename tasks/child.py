"""Run a long computation in a child process, and never leave it, or what it started, behind.

The child has its own session, gets SIGTERM when its parent dies (also by kill -9), and is stopped
when this call ends for any reason: SIGTERM first, so that it can save, then SIGKILL for it and all
of its descendants. Call it in the main thread: the kernel ties a child to the thread that made it,
and Prefect's cancellation arrives there.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from shadow_model.redaction import redacted
from tasks.stage import InterruptedWorkError

GRACE_S = 25.0
_SHIM = Path(__file__).with_name("die_with_parent.py")
_TAIL_LINES = 30
_POLL_S = 0.05


class ChildDiedError(InterruptedWorkError):
    """The child was killed, or stopped after saving.

    Args:
        code: Its exit code; negative for a signal.
        tail: Its last lines.
    """

    def __init__(self, code: int, tail: Sequence[str]) -> None:
        self.code, self.tail = code, tuple(tail)
        super().__init__(code, self.tail)

    def __str__(self) -> str:
        return "\n".join(
            [f"the child process ended with code {self.code}; its last lines:", *self.tail]
        )


def run_child(
    command: Sequence[str],
    on_line: Callable[[str], None],
    env: Mapping[str, str] | None = None,
    grace_s: float = GRACE_S,
) -> int:
    """Run `command` to its end and return its exit code (negative: the signal that killed it).

    Args:
        on_line: Called with every line that it prints, on either stream, without Hub tokens.
        env: Variables added to this process's own.
        grace_s: How long the child may take to save after SIGTERM, in seconds.
    """
    mark = f"SHADOW_CHILD={uuid4()}"
    name, _, value = mark.partition("=")
    with _stopped_at_exit(_start(command, {**(env or {}), name: value}), mark, grace_s) as child:
        assert child.stdout is not None
        for line in child.stdout:
            on_line(redacted(line.rstrip("\n")))
        return child.wait()


def checked_child(
    command: Sequence[str],
    on_line: Callable[[str], None],
    env: Mapping[str, str] | None = None,
    grace_s: float = GRACE_S,
) -> None:
    """Run `command` as `run_child` does; ChildDiedError unless it ends with code 0."""
    tail: deque[str] = deque(maxlen=_TAIL_LINES)

    def keep(line: str) -> None:
        tail.append(line)
        on_line(line)

    if code := run_child(command, keep, env, grace_s):
        raise ChildDiedError(code, tail)


def tied_to_parent(command: Sequence[str]) -> list[str]:
    """Return the command that runs `command` and ends it when this thread's process ends."""
    return [sys.executable, "-I", "-S", str(_SHIM), str(os.getpid()), *command]


def _start(command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        tied_to_parent(command),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        bufsize=1,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
        start_new_session=True,
    )


@contextmanager
def _stopped_at_exit(
    child: subprocess.Popen[str], mark: str, grace_s: float
) -> Iterator[subprocess.Popen[str]]:
    """Stop the child at the end of the block, and what it started whenever it ends itself.

    Its own children are stopped at once, else they would hold the pipe that is being read open.
    """
    follower = threading.Thread(target=_end_family, args=(child, mark), daemon=True)
    follower.start()
    try:
        yield child
    finally:  # also on TerminationSignal, CancelledError and KeyboardInterrupt
        if child.poll() is None:
            child.terminate()
            _wait(child, grace_s)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        follower.join()
        assert child.stdout is not None
        child.stdout.close()


def _end_family(child: subprocess.Popen[str], mark: str) -> None:
    child.wait()
    for pid in marked_processes(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _wait(child: subprocess.Popen[str], seconds: float) -> None:
    """Wait, emptying the pipe: a child that fills it while saving would never end."""
    assert child.stdout is not None
    os.set_blocking(child.stdout.fileno(), False)
    end = time.monotonic() + seconds
    while child.poll() is None and time.monotonic() < end:
        with suppress(BlockingIOError):
            os.read(child.stdout.fileno(), 1 << 16)
        time.sleep(_POLL_S)


def marked_processes(mark: str) -> list[int]:
    """Return the processes whose environment holds `mark`; none where there is no /proc.

    A launcher gives each of its workers a session of its own, and they lose their parent when it
    dies: only the inherited environment still tells whose they are.
    """
    return [
        int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if _has(path, mark)
    ]


def _has(environ: Path, mark: str) -> bool:
    try:
        return mark.encode() in environ.read_bytes()
    except OSError:  # it ended, or is another user's
        return False
