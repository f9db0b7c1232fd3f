"""Two processes that run the same flow on one store: one builds, both end.

They share an API, as on a server; the slow test gives each its own, as the embedded default does.

A builder that is killed holds nothing: the other, which waited for it, builds.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from flows.launch import sealed_environment
from shadow_model.run_record import run_records
from shadow_model.store import Store

TOY = """
import os, time
from pathlib import Path
from typing import Any
from prefect import flow
from shadow_model.receipt import Receipt
from shadow_model.store import Store
from tasks.chain import Chain
from tasks.stage import Work, stage_task

@stage_task("slow", "0 slow", ["shadow_model.schema"])
def slow(work: Work, name: str) -> dict[str, Any]:
    folder = Path(os.environ["SHADOW_TEST"])
    (work.folder / "half.txt").write_text("half")
    (folder / f"{name}.building.{os.getpid()}").touch()
    while not (folder / f"{name}.go").exists():
        time.sleep(0.05)
    (work.folder / "half.txt").rename(work.folder / "out.txt")
    return {}

@stage_task("quick", "1 quick", ["shadow_model.schema"])
def quick(work: Work, slow: Receipt) -> dict[str, Any]:
    folder = Path(os.environ["SHADOW_TEST"])
    (folder / f"quick.building.{os.getpid()}").touch()
    (work.folder / "out.txt").write_text(slow.key)
    return {}

@flow(name="toy")
def toy(store: str, name: str) -> Receipt:
    chain = Chain(Store(store))
    return chain.run(quick, chain.run(slow, name))
"""
EMBEDDED = """
import sys
from flows import embedded
embedded.FLOWS.update(toy="toy_flow")
sys.exit(embedded.main(sys.argv[1:]))
"""
ON_SERVER = """
import json, sys
from toy_flow import toy
toy(**json.loads(sys.argv[1])["parameters"])
"""
WAITS = "Another run builds slow-"


@pytest.fixture
def api(prefect_api: None) -> str:
    """The address of the session's API."""
    del prefect_api
    return str(PREFECT_API_URL.value())


def start(folder: Path, name: str, number: int, api: str | None) -> subprocess.Popen[bytes]:
    """Start the flow on a server, or as `flows.launch` would; its log goes to a file."""
    (folder / "toy_flow.py").write_text(TOY)
    home = folder / "store" / "prefect"
    home.mkdir(parents=True, exist_ok=True)
    caller = {**os.environ, "PYTHONPATH": str(folder), "SHADOW_TEST": str(folder)}
    environment = sealed_environment(caller, home)
    if api:
        environment["PREFECT_API_URL"] = api
    code = ON_SERVER if api else EMBEDDED
    job = {"flow": "toy", "parameters": {"store": str(folder / "store"), "name": name}}
    with log(folder, name, number).open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(job)],
            env=environment,
            cwd=home,
            stdout=file,
            stderr=file,
        )


def log(folder: Path, name: str, number: int) -> Path:
    return folder / f"{name}.{number}.log"


def until(ready: Callable[[], bool]) -> None:
    """Wait until something is so; a wait without an end fails."""
    for _attempt in range(4800):
        if ready():
            return
        threading.Event().wait(0.05)
    raise AssertionError("waited in vain")


def builders(folder: Path, name: str) -> list[int]:
    """Return the processes that have begun to build a stage."""
    return [int(path.suffix[1:]) for path in folder.glob(f"{name}.building.*")]


def one_builds_and_one_waits(
    folder: Path, name: str, api: str | None
) -> list[subprocess.Popen[bytes]]:
    """Start two; returns the one that builds and the one that waits for it."""
    both = [start(folder, name, number, api) for number in range(2)]
    logs = [log(folder, name, number) for number in range(2)]
    until(lambda: any(WAITS in path.read_text() for path in logs))
    (pid,) = builders(folder, name)
    return sorted(both, key=lambda process: process.pid != pid)


def both_succeed(folder: Path, api: str | None) -> None:
    """Check that of two processes one builds each stage, and that both end well."""
    both = one_builds_and_one_waits(folder, "both", api)
    (folder / "both.go").touch()
    codes = [process.wait(240) for process in both]
    assert codes == [0, 0], "".join(log(folder, "both", number).read_text() for number in range(2))
    assert len(builders(folder, "both")) == 1
    assert len(builders(folder, "quick")) == 1
    store = Store(folder / "store")
    states = [use.state for run in run_records(store) for use in run.uses]
    assert sorted(states) == ["built", "built", "cached", "cached"]
    assert not list((store.root / "tmp").iterdir())


def test_one_of_two_builds_each_stage_and_both_succeed(tmp_path: Path, api: str) -> None:
    both_succeed(tmp_path, api)


@pytest.mark.slow
def test_so_it_is_with_an_api_for_each(tmp_path: Path) -> None:
    both_succeed(tmp_path, None)


def test_a_killed_builder_holds_nothing_and_the_one_that_waits_builds(
    tmp_path: Path, api: str
) -> None:
    builder, waiting = one_builds_and_one_waits(tmp_path, "killed", api)
    builder.send_signal(signal.SIGKILL)
    builder.wait()
    (tmp_path / "killed.go").touch()
    assert waiting.wait(240) == 0
    assert set(builders(tmp_path, "killed")) == {builder.pid, waiting.pid}
    store = Store(tmp_path / "store")
    (receipt,) = store.stage_receipts("slow")
    assert [output.name for output in receipt.outputs] == ["out.txt"]
    assert store.find("slow", receipt.key, deep=True)
