"""Runs of a real worker, killed and cancelled while they train, and what is left of them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterKey,
    FlowRunFilter,
    FlowRunFilterId,
)
from prefect.client.schemas.objects import FlowRun

from shadow_model.garbage import remove_garbage
from shadow_model.store import Store
from tests.kill.chain import write_recipe
from tests.server.conftest import Server, until

pytestmark = pytest.mark.server
TRAINER, FLOW_RUN = "shadow_model.train.main", "prefect.engine"
TOKENS = "24576"


class Bench(NamedTuple):
    """A server with a small recipe and its store."""

    server: Server
    recipe: Path
    store: Path

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        """Start a run of the deployment and watch it."""
        given = {"recipe": self.recipe, "store": self.store, "tokens": TOKENS}
        parameters = [word for k, v in given.items() for word in ("-p", f"{k}={v}")]
        head = (sys.executable, "-m", "prefect", "deployment", "run", "proof/tiny", "--watch")
        return self.server.start("watch", *head, *parameters, *more)

    def train(self, *more: str) -> subprocess.Popen[bytes]:
        """Start a run, and wait until it has saved a checkpoint of the looped model."""
        before = set(self.checkpoints())
        watch = self.start(*more)
        until(lambda: set(self.checkpoints()) - before, 240)
        return watch

    def checkpoints(self) -> list[Path]:
        return list(self.store.glob("work/proof-*/checkpoints/step_*"))

    def last(self) -> FlowRun:
        """Return the newest run."""
        return self.server.flow_run(f"proof {self.recipe}")

    def state(self) -> str:
        """Return the name of the newest run's state."""
        state = self.last().state
        return state.name if state else "none"

    def task_states(self) -> dict[str, str]:
        """Return the states of the newest run's tasks."""
        wanted = FlowRunFilter(id=FlowRunFilterId(any_=[self.last().id]))
        with self.server.client() as client:
            runs = client.read_task_runs(flow_run_filter=wanted, limit=200)
        return {run.name: run.state.name for run in runs if run.state}

    def no_trainer(self) -> bool:
        return not self.server.processes(TRAINER)


@pytest.fixture(scope="module")
def bench(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("bench")
    return Bench(server, write_recipe(folder / "recipe"), folder / "store")


@pytest.fixture
def worker(server: Server) -> Iterator[subprocess.Popen[bytes]]:
    process = server.worker()
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_run_whose_machine_died_is_crashed_and_the_next_does_only_what_is_left(
    bench: Bench, worker: subprocess.Popen[bytes]
) -> None:
    watch = bench.train()
    died = bench.last().id
    worker.kill()
    for pid in bench.server.processes(FLOW_RUN):
        os.kill(pid, signal.SIGKILL)
    until(bench.no_trainer, 20)
    assert not bench.server.processes(FLOW_RUN)
    assert bench.state() == "Running", "nobody told"
    until(lambda: bench.state() == "Crashed", 150)
    assert watch.wait(60) != 0
    finished = list(Store(bench.store).receipts())
    saved = max(path.name for path in bench.checkpoints())

    other = bench.server.worker()
    try:
        assert bench.start().wait(240) == 0
    finally:
        os.killpg(other.pid, signal.SIGKILL)
        other.wait()
    assert bench.last().id != died
    assert bench.state() == "Completed"
    wanted = {"1 table", "3 pack train.bin, val.bin", "4 smoke check", "5 speed bench"}
    until(lambda: wanted <= {n for n, s in bench.task_states().items() if s == "Cached"}, 30)
    assert bench.task_states()["6 train proof"] == "Completed"
    receipts = {(r.stage, r.key): r for r in Store(bench.store).receipts()}
    assert all(receipts[r.stage, r.key] == r for r in finished), "none was built again"
    assert f"resumed from {bench.store}" in (log := _logs(bench)), log
    assert saved in log
    remove_garbage(Store(bench.store), keep=5)
    assert not list((bench.store / "tmp").iterdir()), "what the dead run was writing"


def test_the_page_of_a_run_shows_the_chain_and_its_artifacts(
    bench: Bench, browser: Browser
) -> None:
    """Of the run before: the graph itself is drawn, and can only be looked at."""
    page = browser.new_page(viewport={"width": 1500, "height": 1000})
    page.goto(f"{bench.server.url}/runs/flow-run/{bench.last().id}")
    page.locator("li.p-tab", has_text="Task Runs").click()
    for name in ("1 table", "3 pack train.bin, val.bin", "6 train proof", "8 report"):
        page.get_by_role("link", name=name, exact=True).first.wait_for()
    page.locator("li.p-tab", has_text="Artifacts").click()
    page.get_by_text("The run's outcome and lineage").first.wait_for()
    with bench.server.client() as client:
        key = ArtifactFilterKey(any_=["report"])
        (report, *_) = client.read_artifacts(artifact_filter=ArtifactFilter(key=key))
    page.goto(f"{bench.server.url}/v2/artifacts/artifact/{report.id}")
    page.get_by_text("Held-out losses, nats a token").first.wait_for()
    page.locator("svg[id^=mermaid]").first.wait_for()
    page.goto(f"{bench.server.url}/artifacts")
    for key in ("1-table", "3-pack-train-bin-val-bin", "6-train-proof", "8-report"):
        page.get_by_text(key, exact=True).first.wait_for()
    page.close()


def test_the_form_of_a_deployment_describes_its_parameters(bench: Bench, browser: Browser) -> None:
    with bench.server.client() as client:
        deployment = client.read_deployment_by_name("proof/tiny")
    page = browser.new_page(viewport={"width": 1500, "height": 1400})
    page.goto(f"{bench.server.url}/deployments/deployment/{deployment.id}/run")
    for words in ("Training tokens; the recipe's own if empty", "Wall-clock budget of each"):
        page.get_by_text(words).first.wait_for()
    page.close()


def _logs(bench: Bench) -> str:
    return bench.server.prefect("flow-run", "logs", str(bench.last().id), "--reverse").stdout


def _other_seed(number: int) -> tuple[str, str]:
    """Return parameters of a training that no other test has done."""
    return "-p", f"seed={number}"


def _goes_on(bench: Bench, seed: tuple[str, str]) -> None:
    """Run again: the interrupted training goes on from its last checkpoint."""
    saved = max(path.name for path in bench.checkpoints())
    assert bench.start(*seed).wait(240) == 0
    assert bench.state() == "Completed"
    assert f"checkpoints/{saved}" in (log := _logs(bench)), log


@pytest.mark.slow
def test_a_run_outlives_its_worker(bench: Bench, worker: subprocess.Popen[bytes]) -> None:
    bench.train(*_other_seed(1))
    worker.kill()
    worker.wait()
    until(lambda: bench.state() == "Completed", 240)
    until(bench.no_trainer, 20)


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_a_killed_flow_process_is_crashed_and_leaves_no_trainer(bench: Bench) -> None:
    watch = bench.train(*_other_seed(2))
    (flow_process,) = bench.server.processes(FLOW_RUN)
    os.kill(flow_process, signal.SIGKILL)
    until(bench.no_trainer, 20)
    until(lambda: bench.state() == "Crashed", 150)
    assert watch.wait(60) != 0
    _goes_on(bench, _other_seed(2))


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("way", ["command line", "page"])
def test_a_cancelled_run_ends_its_trainer_and_the_next_goes_on(
    bench: Bench, way: str, browser: Browser
) -> None:
    seed = _other_seed(3 if way == "page" else 4)
    bench.train(*seed)
    if way == "page":
        cancel_on_page(browser, bench)
    else:
        bench.server.prefect("flow-run", "cancel", str(bench.last().id))
    until(lambda: bench.state() == "Cancelled", 120)
    until(bench.no_trainer, 30)
    until(lambda: not bench.server.processes(FLOW_RUN), 60)
    _goes_on(bench, seed)


def cancel_on_page(browser: Browser, bench: Bench) -> None:
    """Cancel the newest run by the buttons of its page."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(f"{bench.server.url}/runs/flow-run/{bench.last().id}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Confirm").click()
    page.get_by_role("dialog").wait_for(state="detached")
    page.close()
