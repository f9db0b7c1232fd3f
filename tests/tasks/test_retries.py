"""What is tried again, how often, with which pauses, and what a person sees of it."""

import errno
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prefect import flow

from shadow_model.errors import ConfigError, DataError
from shadow_model.receipt import Receipt
from shadow_model.store import Store
from tasks import stage as stage_module
from tasks.chain import Chain
from tasks.stage import DeviceMemoryError, InterruptedWorkError, StageTask, Work, stage_task

pytestmark = pytest.mark.usefixtures("prefect_api")
CODE = ["shadow_model.table.layout"]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_module, "RETRY_DELAYS_S", (0.0, 0.0, 0.0))


def failing(*errors: Exception) -> tuple[StageTask[[]], list[int]]:
    """Return a stage that fails so, one error an attempt, and then ends; and its attempts."""
    attempts: list[int] = []

    def work(work: Work) -> Mapping[str, Any]:
        attempts.append(1)
        if len(attempts) <= len(errors):
            raise errors[len(attempts) - 1]
        (work.folder / "out.txt").write_text("done")
        return {}

    return stage_task("failing", "0 failing", CODE)(work), attempts


def run(store: Path, stage: StageTask[[]]) -> Receipt:
    return flow(lambda: Chain(Store(store)).run(stage), name="failing")()


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EIO, "disk away"), InterruptedWorkError("killed"), ConnectionResetError()],
    ids=repr,
)
def test_what_may_pass_is_tried_again_and_each_attempt_is_told(
    tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    stage, attempts = failing(error, error)
    run(tmp_path, stage)
    assert len(attempts) == 3
    assert "0 failing: attempt 2 of 4" in caplog.text
    assert "0 failing: attempt 3 of 4" in caplog.text


def test_attempts_end(tmp_path: Path) -> None:
    stage, attempts = failing(*[OSError(errno.EIO, "disk gone")] * 9)
    with pytest.raises(OSError, match="disk gone"):
        run(tmp_path, stage)
    assert len(attempts) == 4


@pytest.mark.parametrize(
    "error",
    [
        DataError("file", "be whole", "half", "Copy it again."),
        ConfigError("field", "be 1", 2, "Correct it."),
        OSError(errno.ENOENT, "absent"),
        ValueError("bug"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_cannot_pass_fails_at_once(tmp_path: Path, error: Exception) -> None:
    stage, attempts = failing(error, error)
    with pytest.raises(type(error)):
        run(tmp_path, stage)
    assert len(attempts) == 1


def test_a_device_out_of_memory_is_tried_once_more_only(tmp_path: Path) -> None:
    error = DeviceMemoryError("set train.micro_batches to 2")
    stage, attempts = failing(error)
    run(tmp_path / "passes", stage)
    assert len(attempts) == 2
    stage, attempts = failing(error, error, error)
    with pytest.raises(DeviceMemoryError, match=r"set train\.micro_batches to 2"):
        run(tmp_path / "fails", stage)
    assert len(attempts) == 2


def test_pauses_grow() -> None:
    original = stage_task("any", "0 any", CODE)(lambda work: {})  # noqa: ARG005
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_module, "RETRY_DELAYS_S", (2.0, 10.0, 60.0))
        task = original.bind(Store("never-made"))
    assert task.retry_delay_seconds == [2.0, 10.0, 60.0]
    assert not Path("never-made").exists()


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A store's disk of two MiB, where this machine lets us mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(["mount", *options], check=False).returncode:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_fails_once_clearly_and_leaves_earlier_outputs_whole(full_disk: Path) -> None:
    attempts: list[int] = []

    def write(work: Work, num_bytes: int) -> Mapping[str, Any]:
        attempts.append(num_bytes)
        (work.folder / "out.bin").write_bytes(bytes(num_bytes))
        return {}

    stage = stage_task("write", "0 write", CODE)(write)
    chain = Chain(Store(full_disk))
    run_one = flow(lambda num_bytes: chain.run(stage, num_bytes), name="write")
    small = run_one(100_000)
    with pytest.raises(DataError, match=r"must have room for what is written; found .*shadow gc"):
        run_one(4 << 20)
    assert attempts == [100_000, 4 << 20]
    assert chain.store.find("write", small.key, deep=True)
    assert run_one(100_000) == small
    assert len(attempts) == 2, "the earlier output was found"
