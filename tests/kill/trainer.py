"""Kill a training process again and again, and compare its end with an undisturbed run's.

The processes are forks of a server that has imported torch, so that each starts in no time.
"""

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from shadow_model.digest import sha256_file
from shadow_model.train.config import TrainJob
from shadow_model.train.main import DONE, PROGRESS_PREFIX, main
from shadow_model.train.telemetry import read_metrics
from tests.kill.die_at import LOG, watch
from tests.small_run import small_arm, write_data

SAVES = r"/checkpoints(/|$)"
TIMES = frozenset({"elapsed_s", "train_s", "logged_s", "tokens_per_s", "peak_bytes"})
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["shadow_model.train.main"])  # installed: it finds no others


class Kills(NamedTuple):
    """What happened.

    Attributes:
        killed: Processes that died by our SIGKILL.
        runs: Runs that came to their end; each was compared.
        different: What of which run was not as in the undisturbed one.
    """

    killed: int
    runs: int
    different: list[str]


class Trainer:
    """A small run, its undisturbed outcome, and as many disturbed ones as asked for.

    Args:
        folder: Empty; all is written below it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._data = folder, write_data(folder)
        self._whole = self._new("whole")
        child = self._start(self._whole)
        began = self._wait_for_progress(self._whole, child)
        child.join()
        assert child.exitcode == DONE, _log(self._whole).read_text()
        self._seconds = time.monotonic() - began
        self.expected = outcome(self._whole.work)

    def kill_at_random(self, kills: int, rng: random.Random) -> Kills:
        """Kill at random moments between the first update and the end."""

        def attempt(job: TrainJob) -> bool:
            child = self._start(job)
            self._wait_for_progress(job, child)
            time.sleep(rng.uniform(0, self._seconds))
            child.kill()
            child.join()
            return child.exitcode == -signal.SIGKILL

        return self._disturb("random", kills, attempt)

    def kill_in_saves(self, kills: int, rng: random.Random) -> Kills:
        """Kill before a random one of the changes that saving makes to the files."""
        log, job = self._folder / "changes.log", self._new("logged")
        self._start(job, 0, log).join()
        num_changes = len(log.read_text().splitlines())
        assert num_changes > 0

        def attempt(job: TrainJob) -> bool:
            child = self._start(job, rng.randint(1, num_changes))
            child.join()
            return child.exitcode == -signal.SIGKILL

        return self._disturb("save", kills, attempt)

    def _disturb(self, name: str, kills: int, attempt: Callable[[TrainJob], bool]) -> Kills:
        killed, runs, different = 0, 0, list[str]()
        while killed < kills or runs == 0:
            job = self._new(f"{name}{runs}")
            while killed < kills and not ended(job):
                killed += attempt(job)
            child = self._start(job)
            child.join()
            assert child.exitcode == DONE, _log(job).read_text()
            runs += 1
            found = outcome(job.work)
            different += [
                f"{name} run {runs}: {key}"
                for key in found.keys() | self.expected.keys()
                if found.get(key) != self.expected.get(key)
            ]
        return Kills(killed, runs, different)

    def _new(self, name: str) -> TrainJob:
        arm = small_arm()
        arm = arm.replace(train=arm.train.replace(progress_every_s=0.0))
        work = self._folder / name
        work.mkdir()
        job = TrainJob(arm=arm, table=self._data.table_path, bins=self._data.bins, work=work)
        (work / "job.json").write_text(job.model_dump_json())
        _log(job).touch()
        return job

    def _start(
        self, job: TrainJob, dies_at: int | None = None, log: Path | None = None
    ) -> BaseProcess:
        child = _SERVER.Process(target=_train, args=(job.work, dies_at, log))
        child.start()
        return child

    def _wait_for_progress(self, job: TrainJob, child: BaseProcess) -> float:
        """Return when the first progress was told, or the process ended."""
        while child.is_alive() and PROGRESS_PREFIX not in _log(job).read_text():
            time.sleep(0.005)
        return time.monotonic()


def _log(job: TrainJob) -> Path:
    return job.work / "trainer.log"


def _train(work: Path, dies_at: int | None, log: Path | None) -> None:
    """Train in this process; its output goes to a file."""
    descriptor = os.open(work / "trainer.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    if log is not None:
        os.environ[LOG] = str(log)
    if dies_at is not None:
        watch(SAVES, dies_at)
    sys.exit(main([str(work / "job.json")]))


def ended(job: TrainJob) -> bool:
    """Tell whether a run has come to its end."""
    return (job.work / "outcome.json").is_file()


def outcome(work: Path) -> dict[str, Any]:
    """Return all that a run leaves, without its times: digests, records, the last state."""
    newest = max((work / "checkpoints").glob("step_*"))
    state = json.loads((newest / "state.json").read_text())
    files = [work / "final" / "model.safetensors", *newest.glob("*.safetensors")]
    return {
        **{str(path.relative_to(work)): sha256_file(path) for path in files},
        "state": _timeless(state),
        "metrics": [_timeless(record) for record in read_metrics(work / "metrics.jsonl")],
        "checkpoints": sorted(path.name for path in (work / "checkpoints").iterdir()),
    }


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in TIMES}
    return value
