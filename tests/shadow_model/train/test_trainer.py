"""The loop: what it records, and that a run cut anywhere ends as one that was not."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from shadow_model.errors import CheckpointError, ConfigError, LayoutError, NumericsError
from shadow_model.nn.config import ModelConfig
from shadow_model.table.layout import KINDS
from shadow_model.table.synthetic import synthetic_table
from shadow_model.train.checkpoint import load_checkpoint, read_weights
from shadow_model.train.config import ArmConfig, TrainJob
from shadow_model.train.interval import StepStats
from shadow_model.train.schedule import Phase
from shadow_model.train.step import Learner, TokenBatch, update
from shadow_model.train.telemetry import read_metrics
from shadow_model.train.trainer import train

TIMES = ("elapsed_s", "train_s", "tokens_per_s", "peak_bytes")


def _job(data: Any, arm: ArmConfig, work: Path) -> TrainJob:
    return TrainJob(arm=arm, table=data.table_path, bins=data.bins, work=work)


def _records(work: Path) -> list[dict[str, Any]]:
    records = read_metrics(work / "metrics.jsonl")
    return [{k: v for k, v in r.items() if k not in TIMES} for r in records]


def _weights(work: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(work / "final" / "model.safetensors")


def _after_calls(number: int) -> Callable[[], bool]:
    calls = 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return calls > number

    return stop


@pytest.fixture(scope="module")
def whole(data: Any, arm: ArmConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the work folder of an uninterrupted run."""
    work = tmp_path_factory.mktemp("whole")
    assert train(_job(data, arm, work))["status"] == "done"
    return work


def test_records_of_a_run(whole: Path) -> None:
    records = _records(whole)
    places = [(r["event"], r["step"]) for r in records if r["event"] != "evaluate"]
    assert places == [
        ("start", 0),
        ("phase", 0),
        ("log", 3),
        ("log", 6),
        ("growth", 6),
        ("phase", 6),
        ("log", 9),
        ("phase", 9),
        ("log", 12),
        ("final", 12),
    ]
    evaluations = [(r["why"], r["step"], r["loops"]) for r in records if r["event"] == "evaluate"]
    assert evaluations == [
        ("start", 0, 2),
        ("start", 0, 4),
        ("periodic", 4, 2),
        ("periodic", 4, 4),
        ("before growth", 6, 2),
        ("growth", 6, 4),
        ("periodic", 8, 4),
        ("final", 12, 4),
    ]


def test_held_out_loss_falls_and_states_its_error(whole: Path) -> None:
    held_out = [r for r in _records(whole) if r["event"] == "evaluate"]
    first, last = held_out[1], held_out[-1]
    assert last["loss"] < first["loss"]
    assert (first["windows"], last["windows"]) == (4, 8)
    assert last["targets"] == 8 * 32 == sum(last["kinds"][kind]["count"] for kind in KINDS)
    assert 0 < last["standard_error"] < last["loss"]


def test_cost_is_recorded(whole: Path) -> None:
    *_, final = _records(whole)
    assert final["tokens"] == 12 * 128
    assert final["annealed"]
    assert final["flops"] > 6 * final["parameters"] * final["tokens"]
    logs = [r for r in _records(whole) if r["event"] == "log"]
    assert sum(k["count"] for r in logs for k in r["kinds"].values()) == 12 * 128
    assert all(r["dropped"] == 0 for r in logs)


def test_final_folder_is_a_model_by_itself(whole: Path, data: Any) -> None:
    model = load_checkpoint(whole / "final")
    about = read_weights(whole / "final")
    assert (about.step, about.loops, about.annealed) == (12, 4, True)
    assert torch.equal(model.state_dict()["alpha"], _weights(whole)["alpha"])
    windows = np.load(whole / "final" / "heldout.npz")
    assert windows["sums"].shape == windows["counts"].shape == (8, 4)
    assert len(windows["starts"]) == 8
    other = load_checkpoint(whole / "checkpoints" / "step_00000012", data.table)
    assert torch.equal(other.state_dict()["alpha"], _weights(whole)["alpha"])
    assert not model.training


@pytest.mark.parametrize("calls", [2, 13, 21])
def test_cut_run_ends_as_the_whole_one(
    calls: int, whole: Path, data: Any, arm: ArmConfig, tmp_path: Path
) -> None:
    """Bit for bit: cut before and in evaluations, around growth and a new length, at the end."""
    job = _job(data, arm, tmp_path)
    assert train(job, stop=_after_calls(calls))["status"] == "stopped"
    assert train(job)["status"] == "done"
    assert _records(tmp_path) == _records(whole)
    expected, found = _weights(whole), _weights(tmp_path)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_run_cut_at_every_step_ends_as_the_whole_one(
    whole: Path, data: Any, arm: ArmConfig, tmp_path: Path
) -> None:
    """Saved and opened again after each update, the one before growth and a new length too."""
    job, begun, done = _job(data, arm, tmp_path), list[float](), 0.0

    def note(now: float, _total: float, _what: str) -> None:
        nonlocal done
        done = now

    for step in range(arm.train.num_steps):
        outcome = train(job, note, lambda step=step: done > step)
        assert (outcome["status"], outcome["step"]) == ("stopped", step + 1)
        begun.append(done)
    assert train(job)["status"] == "done"
    assert begun == list(range(1, arm.train.num_steps + 1))
    assert _records(tmp_path) == _records(whole)
    assert all(torch.equal(t, _weights(whole)[n]) for n, t in _weights(tmp_path).items())


def test_training_draws_from_no_global_generator(data: Any, arm: ArmConfig, tmp_path: Path) -> None:
    """So that what a checkpoint keeps of generators, the one of the windows, is all there is."""
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    before = (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate())
    train(_job(data, arm, tmp_path))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert random.getstate() == before[2]


def test_killed_run_repeats_from_its_last_checkpoint(
    whole: Path, data: Any, arm: ArmConfig, tmp_path: Path
) -> None:
    class KilledError(Exception):
        pass

    def kill(done: float, total: float, what: str) -> None:
        if done == 7 and total == 12 and "test" in what:
            raise KilledError

    job = _job(data, arm, tmp_path)
    with pytest.raises(KilledError):
        train(job, kill)
    metrics = tmp_path / "metrics.jsonl"
    assert read_metrics(metrics)[-1]["step"] == 6
    metrics.write_text(metrics.read_text() + '{"event": "log", "st')
    assert train(job)["status"] == "done"
    assert _records(tmp_path) == _records(whole)


def test_run_cut_in_its_last_evaluation(
    whole: Path, data: Any, arm: ArmConfig, tmp_path: Path
) -> None:
    shutil.copytree(whole, tmp_path / "work")
    job = _job(data, arm, tmp_path / "work")
    (job.work / "outcome.json").unlink()
    for calls in (0, 2):
        assert train(job, stop=_after_calls(calls))["status"] == "stopped"
    assert train(job)["status"] == "done"
    assert _records(job.work) == _records(whole)


def test_finished_run_does_nothing_and_says_so(
    whole: Path, data: Any, arm: ArmConfig, caplog: pytest.LogCaptureFixture
) -> None:
    before = (whole / "metrics.jsonl").stat().st_mtime_ns
    with caplog.at_level("INFO"):
        assert train(_job(data, arm, whole))["step"] == 12
    assert "nothing to do" in caplog.text
    assert (whole / "metrics.jsonl").stat().st_mtime_ns == before


def test_flat_arm_ignores_loops_and_growth(data: Any, arm: ArmConfig, tmp_path: Path) -> None:
    flat = arm.replace(tag="flat", model=arm.model.replace(flat=3))
    assert train(_job(data, flat, tmp_path))["status"] == "done"
    events = {r["event"] for r in _records(tmp_path)}
    assert "growth" not in events
    assert {r["loops"] for r in _records(tmp_path) if "loops" in r} == {1}
    assert read_weights(tmp_path / "final").loops == 1


def test_budget_ends_a_run_unannealed_and_more_hours_go_on(
    whole: Path, data: Any, arm: ArmConfig, tmp_path: Path
) -> None:
    hurried = arm.replace(train=arm.train.replace(hours=1e-9))
    outcome = train(_job(data, hurried, tmp_path))
    assert (outcome["status"], outcome["annealed"], outcome["step"]) == ("budget", False, 0)
    assert train(_job(data, hurried, tmp_path)) == outcome
    assert train(_job(data, arm, tmp_path))["status"] == "done"
    assert _records(tmp_path) == _records(whole)


def test_other_runs_folder_is_refused(whole: Path, data: Any, arm: ArmConfig) -> None:
    other = arm.replace(train=arm.train.replace(lr=1e-4))
    with pytest.raises(CheckpointError, match="this run's train"):
        train(_job(data, other, whole))
    wider = arm.replace(model=ModelConfig(width=64, heads=4))
    with pytest.raises(CheckpointError, match="this run's model"):
        train(_job(data, wider, whole))


def test_too_many_epochs_are_refused(data: Any, arm: ArmConfig, tmp_path: Path) -> None:
    greedy = arm.replace(train=arm.train.replace(tokens=1 << 20))
    with pytest.raises(ConfigError, match="epochs"):
        train(_job(data, greedy, tmp_path))


def test_bins_of_another_table_are_refused(data: Any, arm: ArmConfig, tmp_path: Path) -> None:
    synthetic_table(96, seed=8).save(tmp_path / "table.npz")
    job = TrainJob(arm=arm, table=tmp_path / "table.npz", bins=data.bins, work=tmp_path / "work")
    with pytest.raises(LayoutError, match=r"packed\.json"):
        train(job)


def test_non_finite_gradient_stops_and_keeps_the_last_checkpoint(
    data: Any, arm: ArmConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(learner: Learner, batch: TokenBatch, phase: Phase, step: int) -> StepStats:
        if step == 7:
            learner.readout.get_buffer("bias_text")[5] = torch.nan
        return update(learner, batch, phase, step)

    monkeypatch.setattr("shadow_model.train.trainer.update", spoiled)
    with pytest.raises(NumericsError, match=r"step 7: .*out_proj\.weight.*windows start at"):
        train(_job(data, arm, tmp_path))
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step_00000004"]
