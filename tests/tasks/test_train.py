"""Training as a child process: what it says, how it fails, and a real small run that resumes."""

import json
import signal
import sys

import pytest
from prefect import flow
from prefect.logging import disable_run_logger

from shadow_model.errors import ShadowError
from shadow_model.train.main import (
    BAD_INPUT,
    IO_FAULT,
    OUT_OF_MEMORY,
    PROGRESS_PREFIX,
    STOPPED,
)
from tasks.child import ChildDiedError
from tasks.stage import DeviceMemoryError, InterruptedWorkError
from tasks.train import TrainerFailedError, run_trainer

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


def _silent(_done: float, _total: float, _what: str) -> None:
    return None
