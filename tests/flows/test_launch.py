"""The embedded default is sealed from the caller's Prefect and folder."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.launch import SETTINGS, launch, sealed_environment


def test_no_setting_of_the_caller_passes(tmp_path: Path) -> None:
    caller = {
        "PATH": "/bin",
        "PREFECT_API_URL": "http://example.invalid/api",
        "prefect_home": "/elsewhere",
        "PREFECT_PROFILE": "cloud",
    }
    sealed = sealed_environment(caller, tmp_path)
    ours = {name for name in sealed if name.upper().startswith("PREFECT_")}
    assert ours == {*SETTINGS, "PREFECT_HOME"}
    assert sealed["PREFECT_HOME"] == str(tmp_path)
    assert sealed["PATH"] == "/bin"


def test_waiting_threads_leave_the_core_unless_the_caller_says_otherwise(tmp_path: Path) -> None:
    assert sealed_environment({}, tmp_path)["OMP_WAIT_POLICY"] == "passive"
    active = sealed_environment({"OMP_WAIT_POLICY": "active"}, tmp_path)
    assert active["OMP_WAIT_POLICY"] == "active"


def test_project_is_importable_before_the_callers_paths(tmp_path: Path) -> None:
    sealed = sealed_environment({"PYTHONPATH": "/theirs"}, tmp_path)
    ours, theirs = sealed["PYTHONPATH"].split(os.pathsep)
    assert (Path(ours) / "flows" / "launch.py").exists()
    assert theirs == "/theirs"


def test_paths_are_resolved_against_the_callers_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: dict[str, Any] = {}

    def execve(path: str, command: list[str], environment: dict[str, str]) -> None:
        called.update(path=path, job=json.loads(command[-1]), env=environment, cwd=Path.cwd())

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.chdir(tmp_path)
    parameters = {"recipe": "mine.toml", "data": "books", "seed": None, "tokens": 5}
    launch("proof", parameters, Path("store"))  # type: ignore[unused-coroutine]
    assert called["path"] == sys.executable
    assert called["cwd"] == tmp_path / "store" / "prefect"
    assert called["job"] == {
        "flow": "proof",
        "parameters": {
            "recipe": str(tmp_path / "mine.toml"),
            "data": str(tmp_path / "books"),
            "tokens": 5,
            "store": str(tmp_path / "store"),
        },
    }


def test_a_recipe_name_stays_a_name_though_a_folder_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda _p, command, _e: jobs.append(json.loads(command[-1])))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    launch("smoke", {"recipe": "tiny"}, tmp_path)  # type: ignore[unused-coroutine]
    assert jobs[0]["parameters"]["recipe"] == "tiny"
