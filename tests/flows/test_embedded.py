"""The embedded default on a real API of its own: everything recorded, nothing left, clear ends.

A toy flow stands for ours; it runs in a process as `flows.launch` would start it, with Prefect
settings in the environment and the current folder that would break it if they leaked in.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from flows.launch import sealed_environment
from tasks.child import marked_processes

NUM_PARTS = 40
RUNS = """
SELECT flow_run.id, flow_run.state_name FROM flow_run
JOIN flow ON flow.id = flow_run.flow_id WHERE flow.name = ?
"""

TOY = """
import sys
from typing import Any
from prefect import flow
from shadow_model.errors import DataError
from shadow_model.receipt import Receipt
from shadow_model.store import Store
from prefect.task_runners import ThreadPoolTaskRunner
from tasks.chain import Chain
from tasks.child import run_child
from tasks.stage import Work, stage_task

@stage_task("part", "0 part", ["shadow_model.schema"])
def part(work: Work, number: int) -> dict[str, Any]:
    (work.folder / "out.txt").write_text(str(number))
    return {}

@stage_task("whole", "1 whole", ["shadow_model.schema"])
def whole(work: Work, parts: list[Receipt], bad: bool) -> dict[str, Any]:
    if bad:
        raise DataError("file.txt", "be good", "bad", "Mend it.")
    (work.folder / "report.html").write_text("<html>")
    return {}

def say(line: str) -> None:
    print(line, flush=True)

@stage_task("sleep", "0 sleep", ["shadow_model.schema"])
def sleep(work: Work) -> dict[str, Any]:
    run_child([sys.executable, "-c", "import time; print('asleep'); time.sleep(90)"], say)
    return {}

@flow(name="sleepy")
def sleepy(store: str) -> Receipt:
    return Chain(Store(store)).run(sleep)

@flow(name="toy", task_runner=ThreadPoolTaskRunner(max_workers=4))
def toy(store: str, num_parts: int, bad: bool = False) -> Receipt:
    chain = Chain(Store(store))
    batches = {f"0 part {i}": i for i in range(num_parts)}
    receipt = chain.run(whole, chain.map(part, batches, "number"), bad)
    chain.tell_summary()
    return receipt
"""

RUN = """
import json, sys
from flows import embedded
embedded.FLOWS.update(toy="toy_flow", sleepy="toy_flow")
sys.exit(embedded.main(sys.argv[1:]))
"""


Process = subprocess.Popen[str]


class Finish(NamedTuple):
    """How a process ended."""

    returncode: int
    stdout: str
    stderr: str


Finished = tuple[Path, list[Finish]]


def start(folder: Path, flow: str, mark: str = "none", **parameters: object) -> Process:
    """Start a toy flow as an embedded process whose caller has other ideas of Prefect."""
    (folder / "toy_flow.py").write_text(TOY)
    home = folder / "store" / "prefect"
    home.mkdir(parents=True, exist_ok=True)
    caller = {
        **os.environ,
        "PREFECT_API_URL": "http://127.0.0.1:1/api",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "1",
        "PYTHONPATH": str(folder),
        "SHADOW_TEST": mark,
    }
    job = {"flow": flow, "parameters": {"store": str(folder / "store"), **parameters}}
    return subprocess.Popen(
        [sys.executable, "-c", RUN, json.dumps(job)],
        env=sealed_environment(caller, home),
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_toy(folder: Path, **parameters: object) -> Finish:
    """Run the toy flow to its end."""
    with start(folder, "toy", **parameters) as process:
        stdout, stderr = process.communicate(timeout=240)
        return Finish(process.returncode, stdout, stderr)


def states(folder: Path, flow: str) -> list[dict[str, int]]:
    """Count the states that the API recorded: of a flow's runs, and of their task runs."""
    queries = (
        f"SELECT state_name, count(*) FROM ({RUNS}) GROUP BY state_name",
        f"SELECT t.state_name, count(*) FROM task_run t JOIN ({RUNS}) r ON r.id = t.flow_run_id "
        "GROUP BY t.state_name",
    )
    with closing(sqlite3.connect(folder / "store" / "prefect" / "prefect.db")) as database:
        return [dict(database.execute(query, (flow,)).fetchall()) for query in queries]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A run of the flow, and one on the same store that is given bad input at its end."""
    folder = tmp_path_factory.mktemp("embedded")
    runs = [run_toy(folder, num_parts=NUM_PARTS, bad=bad) for bad in (False, True)]
    return folder, runs


def test_ends_with_the_path_of_the_page(finished: Finished) -> None:
    folder, (good, _bad) = finished
    assert good.returncode == 0, good.stderr
    page = Path(good.stdout.strip().splitlines()[-1])
    assert page.name == "report.html"
    assert page.is_relative_to(folder / "store" / "stages" / "whole")
    assert page.exists()


def test_the_log_says_what_ran_and_what_was_cached(finished: Finished) -> None:
    _folder, (good, bad) = finished
    assert f"{NUM_PARTS + 1} of {NUM_PARTS + 1} stages ran, 0 cached" in good.stderr
    assert bad.stderr.count(": cached, ") == NUM_PARTS


def test_all_task_runs_are_recorded(finished: Finished) -> None:
    folder, _runs = finished
    assert states(folder, "toy") == [
        {"Completed": 1, "Failed": 1},
        {"Completed": NUM_PARTS + 1, "Cached": NUM_PARTS, "Failed": 1},
    ]


def test_bad_input_is_told_once_without_a_traceback(finished: Finished) -> None:
    _folder, (_good, bad) = finished
    assert bad.returncode == 2
    assert "DataError: file.txt\n  must be good\n  found bad\n  Mend it.\n" in bad.stderr
    assert "Traceback" not in bad.stderr


def asleep(process: Process) -> None:
    """Wait until the flow's child process works."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "asleep\n", process.stderr.read() if process.stderr else ""


def left_running(mark: str) -> list[int]:
    """Return what still runs of a flow after some seconds: the kernel takes a moment."""
    for _attempt in range(100):
        if not (left := marked_processes(f"SHADOW_TEST={mark}")):
            return []
        threading.Event().wait(0.1)
    return left


def test_a_stopped_flow_says_so_and_leaves_nothing(finished: Finished, tmp_path: Path) -> None:
    folder, _runs = finished  # its API starts faster: the database is there
    for sent, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        mark = f"{tmp_path}/{code}"
        with start(folder, "sleepy", mark) as process:
            asleep(process)
            process.send_signal(sent)
            _stdout, stderr = process.communicate(timeout=120)
        assert process.returncode == code, stderr
        assert left_running(mark) == []
    assert states(folder, "sleepy") == [{"Crashed": 2}, {"Crashed": 2}]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_a_killed_flow_leaves_nothing_running(finished: Finished, tmp_path: Path) -> None:
    folder, mark = finished[0], str(tmp_path)
    with start(folder, "sleepy", mark) as process:
        asleep(process)
        assert len(marked_processes(f"SHADOW_TEST={mark}")) >= 3, "flow, API and child"
        process.kill()
    assert left_running(mark) == []
