"""The training process: exit codes, progress lines, and SIGTERM, as a parent sees them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shadow_model.errors import ConfigError, DataError
from shadow_model.train.config import ArmConfig, TrainJob
from shadow_model.train.main import BAD_INPUT, DONE, PROGRESS_PREFIX, STOPPED, read_job
from shadow_model.train.telemetry import read_metrics


@pytest.fixture
def job(data: Any, arm: ArmConfig, tmp_path: Path) -> TrainJob:
    hasty = arm.replace(train=arm.train.replace(progress_every_s=0.0))
    work = tmp_path / "work"
    return TrainJob(arm=hasty, table=data.table_path, bins=data.bins, work=work)


@pytest.fixture
def job_path(job: TrainJob, tmp_path: Path) -> Path:
    path = tmp_path / "job.json"
    path.write_text(job.model_dump_json())
    return path


def _start(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "shadow_model.train.main", str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def _progress(lines: list[str]) -> list[dict[str, Any]]:
    told = [line for line in lines if line.startswith(PROGRESS_PREFIX)]
    return [json.loads(line.removeprefix(PROGRESS_PREFIX)) for line in told]


def test_sigterm_saves_and_leaves_and_the_next_start_ends(job: TrainJob, job_path: Path) -> None:
    child = _start(job_path)
    assert child.stdout is not None
    lines = []
    for line in child.stdout:  # lines come while it works, not at its end
        lines.append(line)
        if line.startswith(PROGRESS_PREFIX) and _progress([line])[0]["done"] == 5:
            child.send_signal(signal.SIGTERM)
    assert child.wait() == STOPPED
    assert any(line.startswith("SIGTERM") for line in lines)
    assert any(line.startswith("step 3  ctx 32  K 2  loss ") for line in lines)
    assert any(line.startswith("HELD-OUT step 0  ctx 32  loss ") for line in lines)
    newest = max((job.work / "checkpoints").iterdir())
    stopped_at = int(newest.name.removeprefix("step_"))
    assert 5 <= stopped_at < 12
    child = _start(job_path)
    output, _ = child.communicate()
    assert child.returncode == DONE
    assert _progress(output.splitlines())[0]["done"] == stopped_at
    assert [r["event"] for r in read_metrics(job.work / "metrics.jsonl")].count("final") == 1


def test_bad_input_has_its_own_code_and_its_reason_comes_last(
    job: TrainJob, tmp_path: Path
) -> None:
    path = tmp_path / "job.json"
    path.write_text(job.replace(bins=tmp_path / "absent").model_dump_json())
    child = _start(path)  # in this process, it would take over logging and signals
    output, _ = child.communicate()
    assert child.returncode == BAD_INPUT
    last = output.splitlines()[-1]
    assert last.startswith("DataError: ")
    assert "absent" in last


def test_job_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    with pytest.raises(DataError, match=r"job\.json"):
        read_job(path)
    path.write_text("{")
    with pytest.raises(DataError, match=r"job\.json"):
        read_job(path)
    path.write_text('{"arm": {}}')
    with pytest.raises(ConfigError, match="bins"):
        read_job(path)
