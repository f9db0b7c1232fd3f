"""One job at a time on a device, in threads, processes and flows; the dead hold nothing."""

import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prefect import flow

from shadow_model.locking import is_locked
from shadow_model.store import Store
from tasks import device as device_module
from tasks.chain import Chain
from tasks.device import alone_on
from tasks.stage import Work, stage_task

HOLDER = """
import sys
from pathlib import Path
from tasks.device import alone_on
with alone_on("gpu-0", Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_no_device_holds_nothing(tmp_path: Path) -> None:
    with alone_on(None, tmp_path / "locks"):
        assert not (tmp_path / "locks").exists()


def test_a_killed_job_of_another_process_frees_the_device(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert is_locked(tmp_path / "gpu-0.lock")
        with alone_on("gpu-1", tmp_path):
            pass
        other.send_signal(signal.SIGKILL)
        other.wait()
    with alone_on("gpu-0", tmp_path):
        assert is_locked(tmp_path / "gpu-0.lock")
    assert not is_locked(tmp_path / "gpu-0.lock")


@pytest.mark.usefixtures("prefect_api")
def test_jobs_of_two_stores_never_overlap_on_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(device_module, "FOLDER", tmp_path / "locks")
    together, inside, most = threading.Barrier(2), list[str](), list[int]()

    def compute(work: Work, name: str) -> Mapping[str, Any]:
        inside.append(name)
        for _attempt in range(400):  # until the other has asked for the device, and was told
            if "Another job uses gpu-0" in caplog.text:
                break
            threading.Event().wait(0.05)
        most.append(len(inside))
        inside.remove(name)
        (work.folder / "out.txt").write_text(name)
        return {}

    stage = stage_task("compute", "0 compute", ["shadow_model.schema"], device=lambda _: "gpu-0")(
        compute
    )

    @flow(name="gpu")
    def one(name: str) -> None:
        together.wait()
        Chain(Store(tmp_path / name)).run(stage, name)

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(one, "a"), pool.submit(one, "b")]:
            future.result()
    assert most == [1, 1]
    assert "Another job uses gpu-0; waiting for it." in caplog.text
