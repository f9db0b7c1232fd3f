"""Training as a child process: what it says, how it fails, and a real small run that resumes."""

import json
import shutil
import signal
import sys
from pathlib import Path

import pytest
from prefect import flow
from prefect.logging import disable_run_logger

from shadow_model.data.bins import PACKED
from shadow_model.errors import ShadowError
from shadow_model.receipt import Identity, Receipt
from shadow_model.store import Store
from shadow_model.train.main import (
    BAD_INPUT,
    IO_FAULT,
    OUT_OF_MEMORY,
    PROGRESS_PREFIX,
    STOPPED,
)
from shadow_model.train.telemetry import read_metrics
from tasks.chain import Chain
from tasks.child import ChildDiedError
from tasks.stage import DeviceMemoryError, InterruptedWorkError
from tasks.train import TrainerFailedError, run_trainer, train_proof
from tests.small_run import small_arm, write_data

Calls = list[tuple[float, float, str]]


def child(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def run(command: list[str]) -> Calls:
    calls: Calls = []
    with disable_run_logger():
        run_trainer(command, lambda done, total, what: calls.append((done, total, what)))
    return calls


def test_progress_lines_become_progress() -> None:
    line = PROGRESS_PREFIX + json.dumps({"done": 3, "total": 40, "what": "proof"})
    assert run(child(f"print('step 3'); print({line!r})")) == [(3, 40, "proof")]


def test_refused_input_is_told_with_its_reason_and_never_retried() -> None:
    code = f"print('DataError: val.bin: must hold a window'); raise SystemExit({BAD_INPUT})"
    with pytest.raises(ShadowError, match=r"val\.bin: must hold a window"):
        run(child(code))


def test_out_of_memory_says_which_field_would_help() -> None:
    code = f"print('set train.micro_batches to 2'); raise SystemExit({OUT_OF_MEMORY})"
    with pytest.raises(DeviceMemoryError, match=r"set train\.micro_batches to 2"):
        run(child(code))


def test_a_fault_of_the_trainer_itself_is_not_tried_again() -> None:
    with pytest.raises(TrainerFailedError, match="ZeroDivisionError"):
        run(child("1 / 0"))


@pytest.mark.parametrize(
    "code",
    [
        f"raise SystemExit({STOPPED})",
        f"raise SystemExit({IO_FAULT})",
        "import os; os.kill(os.getpid(), 9)",
    ],
)
def test_a_stopped_or_killed_trainer_may_be_tried_again(code: str) -> None:
    with pytest.raises(InterruptedWorkError) as caught:
        run(child(code))
    assert isinstance(caught.value, ChildDiedError)
    assert caught.value.code in (STOPPED, IO_FAULT, -signal.SIGKILL)


@pytest.mark.usefixtures("prefect_api")
def test_lines_reach_the_log_of_the_run(caplog: pytest.LogCaptureFixture) -> None:
    flow(lambda: run_trainer(child("print('step 7  loss 5.5')"), _silent), name="logs")()
    assert "step 7  loss 5.5" in [r.getMessage() for r in caplog.records]


@pytest.mark.usefixtures("prefect_api")
def test_more_hours_go_on_where_fewer_ended(tmp_path: Path) -> None:
    store, data = Store(tmp_path / "store"), write_data(tmp_path)
    table = published(store, "table", [data.table_path])
    bins = published(store, "pack", [data.bins / n for n in ("train.bin", "val.bin", PACKED)])

    def train_for(hours: float | None) -> Receipt:
        arm = small_arm()
        arm = arm.replace(train=arm.train.replace(hours=hours))
        return flow(lambda: Chain(store).run(train_proof, table, bins, arm), name="hours")()

    short = train_for(1e-9)
    assert (short.counts["status"], short.counts["step"]) == ("budget", 0)
    (work,) = (store.root / "work").iterdir()
    whole = train_for(None)
    assert (whole.counts["status"], whole.counts["step"]) == ("done", 12)
    records = read_metrics(store.folder(whole) / "metrics.jsonl")
    assert [r["step"] for r in records if r["event"] == "start"] == [0], "it began once"
    assert store.find(short.stage, short.key, deep=True) == short, "its outputs are as they were"
    assert not work.exists()


def published(store: Store, stage: str, paths: list[Path]) -> Receipt:
    """Publish files as the outputs of a stage."""
    with store.build(Identity.of(stage, [], {}, [])) as build:
        for path in paths:
            shutil.copy(path, build.folder)
    assert build.receipt is not None
    return build.receipt


def _silent(_done: float, _total: float, _what: str) -> None:
    return None
