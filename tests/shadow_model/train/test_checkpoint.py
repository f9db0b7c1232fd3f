"""Checkpoints are whole or not there, and keep the last few."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from shadow_model import load_checkpoint
from shadow_model.digest import sha256_file
from shadow_model.errors import CheckpointError, LayoutError
from shadow_model.nn.model import Shadow
from shadow_model.table.synthetic import synthetic_table
from shadow_model.train.checkpoint import (
    TrainingState,
    Weights,
    latest_checkpoint,
    read_checkpoint,
    save_checkpoint,
    save_weights,
    tidy_checkpoints,
)
from shadow_model.train.config import ArmConfig


def _state(data: Any, arm: ArmConfig, step: int) -> TrainingState:
    return TrainingState(
        tag=arm.tag,
        model=arm.model,
        table_sha256=sha256_file(data.table_path),
        loops=2,
        step=step,
        tokens=step * 128,
        train=arm.train,
        elapsed_s=1 / 3,
        train_s=0.25,
        logged_s=0.125,
        num_records=5,
        windows={"rng": {"state": 2**100}},
        interval={"sums": [0.1]},
    )


@pytest.fixture
def model(data: Any, arm: ArmConfig) -> Shadow:
    return Shadow(arm.model, data.table, seed=3)


@pytest.fixture
def saved(data: Any, arm: ArmConfig, model: Shadow, tmp_path: Path) -> Path:
    """Return a folder with the checkpoints of steps 4 and 8."""
    folder = tmp_path / "checkpoints"
    for step in (2, 4, 8):
        tensors = {"alpha.step": torch.tensor(float(step))}
        save_checkpoint(folder, model.state_dict(), tensors, _state(data, arm, step), keep=2)
    return folder


def test_everything_comes_back(saved: Path, data: Any, arm: ArmConfig, model: Shadow) -> None:
    assert sorted(p.name for p in saved.iterdir()) == ["step_00000004", "step_00000008"]
    newest = latest_checkpoint(saved)
    assert newest == saved / "step_00000008"
    checkpoint = read_checkpoint(newest)
    expected = _state(data, arm, 8).replace(files=checkpoint.state.files)
    assert checkpoint.state == expected
    assert checkpoint.state.windows["rng"]["state"] == 2**100
    assert checkpoint.optimizer["alpha.step"] == 8.0
    own = model.state_dict()
    assert own.keys() == checkpoint.model.keys()
    assert all(torch.equal(t, own[n]) for n, t in checkpoint.model.items())


@pytest.mark.parametrize("damage", ["cut", "gone", "version", "json"])
def test_damaged_checkpoint_is_passed_over_and_named(
    damage: str, saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest = saved / "step_00000008"
    weights, state = newest / "model.safetensors", newest / "state.json"
    if damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif damage == "gone":
        weights.unlink()
    elif damage == "json":
        state.write_text(state.read_text()[:-20])
    else:
        state.write_text(json.dumps({**json.loads(state.read_text()), "version": 2}))
    assert latest_checkpoint(saved) == saved / "step_00000004"
    assert "step_00000008" in caplog.text
    with pytest.raises(CheckpointError, match="step_00000008"):
        read_checkpoint(newest)


def test_killed_while_writing_leaves_no_checkpoint(
    saved: Path, data: Any, arm: ArmConfig, model: Shadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shadow_model.train.checkpoint.write_whole", killed)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(saved, model.state_dict(), {}, _state(data, arm, 12), keep=1)
    assert sorted(p.name for p in saved.iterdir()) == ["step_00000004", "step_00000008"]


def test_what_a_kill_left_behind_is_cleared(
    saved: Path, data: Any, arm: ArmConfig, model: Shadow
) -> None:
    (saved / ".writing.dead").mkdir()
    save_checkpoint(saved, model.state_dict(), {}, _state(data, arm, 12), keep=1)
    assert [p.name for p in saved.iterdir()] == ["step_00000012"]


def test_tidying_keeps_the_newest_whole_checkpoint(saved: Path) -> None:
    (saved / ".writing.dead").mkdir()
    (saved / "step_00000008" / "model.safetensors").unlink()
    tidy_checkpoints(saved, keep=1)
    assert sorted(p.name for p in saved.iterdir()) == ["step_00000004", "step_00000008"]
    tidy_checkpoints(saved.parent / "absent", keep=1)


def test_equal_state_is_written_as_equal_bytes(saved: Path) -> None:
    newest = saved / "step_00000008"
    before = {path.name: path.read_bytes() for path in newest.iterdir()}
    checkpoint = read_checkpoint(newest)
    save_checkpoint(saved, checkpoint.model, checkpoint.optimizer, checkpoint.state, keep=2)
    assert {path.name: path.read_bytes() for path in newest.iterdir()} == before


def test_same_step_is_written_anew(saved: Path, data: Any, arm: ArmConfig, model: Shadow) -> None:
    state = _state(data, arm, 8).replace(elapsed_s=9.0)
    path = save_checkpoint(saved, model.state_dict(), {}, state, keep=2)
    assert read_checkpoint(path).state.elapsed_s == 9.0


def test_no_checkpoint(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "absent") is None


@pytest.fixture
def final(data: Any, arm: ArmConfig, model: Shadow, tmp_path: Path) -> Path:
    """Return a folder of weights."""
    state = _state(data, arm, 8)
    fields = {name: getattr(state, name) for name in Weights.model_fields}
    save_weights(tmp_path / "final", model.state_dict(), Weights(**fields), data.table_path)
    return tmp_path / "final"


def test_loaded_model_computes_the_same(final: Path, model: Shadow) -> None:
    loaded = load_checkpoint(str(final))
    ids = torch.arange(24).view(1, 24)
    model.eval()
    assert torch.equal(loaded(ids, 2).hidden, model(ids, 2).hidden)


def test_checkpoint_finds_the_table_of_its_run(saved: Path, data: Any) -> None:
    newest = saved / "step_00000008"
    with pytest.raises(LayoutError, match="no such file"):
        load_checkpoint(newest)
    shutil.copy(data.table_path, saved.parent / "table.npz")
    assert load_checkpoint(newest).config.width == 32


def test_other_table_is_refused(final: Path) -> None:
    (final / "table.npz").unlink()
    synthetic_table(96, seed=8).save(final / "table.npz")
    with pytest.raises(LayoutError, match="sha256"):
        load_checkpoint(final)


def test_weights_that_do_not_fit_are_named(final: Path) -> None:
    config = final / "config.json"
    content = json.loads(config.read_text())
    content["model"]["core"] = 2
    config.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"core\.1\.f1\.weight None for \(85, 32\)"):
        load_checkpoint(final)


def test_folder_without_weights(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"state\.json"):
        load_checkpoint(tmp_path)
