"""The embedded default on a real API of its own: everything recorded, nothing left, clear ends.

A toy flow stands for ours; it runs in a process as `flows.launch` would start it, with Prefect
settings in the environment and the current folder that would break it if they leaked in.
"""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from flows.launch import sealed_environment

NUM_PARTS = 40

TOY = """
from pathlib import Path
from typing import Any
from prefect import flow
from shadow_model.errors import DataError
from shadow_model.receipt import Receipt
from shadow_model.store import Store
from prefect.task_runners import ThreadPoolTaskRunner
from tasks.chain import Chain
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
embedded.FLOWS["toy"] = "toy_flow"
sys.exit(embedded.main(sys.argv[1:]))
"""


Finished = tuple[Path, list[subprocess.CompletedProcess[str]]]


def run_toy(folder: Path, **parameters: object) -> subprocess.CompletedProcess[str]:
    """Run the toy flow as an embedded process whose caller has other ideas of Prefect."""
    (folder / "toy_flow.py").write_text(TOY)
    home = folder / "store" / "prefect"
    home.mkdir(parents=True, exist_ok=True)
    caller = {
        **os.environ,
        "PREFECT_API_URL": "http://127.0.0.1:1/api",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "1",
        "PYTHONPATH": str(folder),
    }
    job = {"flow": "toy", "parameters": {"store": str(folder / "store"), **parameters}}
    return subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(job)],
        env=sealed_environment(caller, home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


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
    query = "SELECT state_name, count(*) FROM task_run GROUP BY state_name"
    with closing(sqlite3.connect(folder / "store" / "prefect" / "prefect.db")) as database:
        states = dict(database.execute(query).fetchall())
    assert states == {"Completed": NUM_PARTS + 1, "Cached": NUM_PARTS, "Failed": 1}


def test_bad_input_is_told_once_without_a_traceback(finished: Finished) -> None:
    _folder, (_good, bad) = finished
    assert bad.returncode == 2
    assert "DataError: file.txt\n  must be good\n  found bad\n  Mend it.\n" in bad.stderr
    assert "Traceback" not in bad.stderr
