"""Children: their lines arrive, and none outlives the call or its parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.child import ChildDiedError, checked_child, marked_processes, run_child

SAVES = """
import signal, sys, time
def save(*_):
    print("saved", flush=True)
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(60)
"""

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "60"], start_new_session=True)
print(os.getpid(), child.pid, flush=True)
time.sleep(60)
"""

PARENT = """
import sys
from tasks.child import run_child
run_child([sys.executable, "-c", sys.argv[1]], lambda line: print(line, flush=True))
"""


class StopError(BaseException):
    """Stands for Prefect's TerminationSignal: no Exception."""


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def gone(pid: int, within_s: float = 10.0) -> bool:
    """Tell whether a process ends within some seconds; a zombie has ended."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_lines_of_both_streams_arrive_in_order() -> None:
    lines: list[str] = []
    code = "import sys; print('a'); print('b', file=sys.stderr); print('ü')"
    assert run_child(python(code), lines.append) == 0
    assert lines == ["a", "b", "ü"]


def test_environment_is_added_to() -> None:
    lines: list[str] = []
    code = "import os; print(os.environ['SHADOW_X'], 'PATH' in os.environ)"
    run_child(python(code), lines.append, env={"SHADOW_X": "1"})
    assert lines == ["1 True"]


def test_a_failure_tells_code_and_last_lines() -> None:
    with pytest.raises(ChildDiedError, match=r"code 7; its last lines:\nwhy") as caught:
        checked_child(python("print('why'); raise SystemExit(7)"), lambda _line: None)
    assert caught.value.code == 7


def test_a_killed_child_tells_its_signal() -> None:
    code = "import os; os.kill(os.getpid(), 9)"
    assert run_child(python(code), lambda _line: None) == -signal.SIGKILL


def test_the_child_may_save_when_the_call_is_stopped(tmp_path: Path) -> None:
    marker = tmp_path / "saved"
    code = SAVES.replace('print("saved", flush=True)', f"open({str(marker)!r}, 'w').close()")

    def stop(_line: str) -> None:
        raise StopError

    with pytest.raises(StopError):
        run_child(python(code), stop)
    assert marker.exists()


def test_a_child_that_prints_much_while_saving_is_not_stuck(tmp_path: Path) -> None:
    marker = tmp_path / "saved"
    noisy = f"print('x' * 10**6, flush=True); open({str(marker)!r}, 'w').close()"
    code = SAVES.replace('print("saved", flush=True)', noisy)

    def stop(_line: str) -> None:
        raise StopError

    with pytest.raises(StopError):
        run_child(python(code), stop)
    assert marker.exists()


def test_all_that_a_stubborn_child_started_is_killed() -> None:
    pids: list[int] = []

    def stop(line: str) -> None:
        pids.extend(map(int, line.split()))
        raise StopError

    with pytest.raises(StopError):
        run_child(python(STUBBORN), stop, grace_s=0.2)
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def test_what_a_finished_child_left_running_is_killed() -> None:
    lines: list[str] = []
    leave = STUBBORN.replace("time.sleep(60)", "")  # the grandchild holds the pipe open
    assert run_child(python(leave), lines.append) == 0
    assert all(gone(int(pid)) for pid in lines[0].split())


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_a_killed_parent_takes_its_child_along() -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with subprocess.Popen(python(PARENT, code), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        assert gone(child)


def test_marks_are_found_in_environments() -> None:
    mark = f"SHADOW_TEST={os.getpid()}"
    name, _, value = mark.partition("=")
    with subprocess.Popen(["sleep", "30"], env={**os.environ, name: value}) as process:
        assert marked_processes(mark) == [process.pid]
        process.kill()
    assert marked_processes(mark) == []
