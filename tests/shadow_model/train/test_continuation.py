"""A run of the reference program goes on here: its next losses, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from shadow_model.errors import CheckpointError, ConfigError
from shadow_model.nn.model import Shadow
from shadow_model.table.store import Table
from shadow_model.train.config import ArmConfig, LengthStage, TrainJob
from shadow_model.train.continuation import read_continuation, reference_arm
from shadow_model.train.telemetry import read_metrics
from shadow_model.train.trainer import train

GOLDEN = Path(__file__).parents[2] / "golden" / "resume"
LATEST = GOLDEN / "latest.pt"
FIRST, GROWTH, STEPS = 6, 8, 12
TOLERANCE = 1e-2
"""Absolute, on a step's loss: index positions and the decay of alpha differ, and single roundings
of the quantisers cascade."""


@pytest.fixture(scope="module")
def arm() -> ArmConfig:
    arm = reference_arm(LATEST)
    quick = {"evaluate_ctx_tokens": 64, "evaluate_tokens": 128, "evaluate_final_tokens": 128}
    small = {"device": "cpu", "threads": 1, "log_every_steps": 1, "checkpoint_every_steps": 11}
    return arm.replace(train=arm.train.replace(**quick, **small))


def _job(arm: ArmConfig, work: Path) -> TrainJob:
    return TrainJob(arm=arm, table=GOLDEN / "table.npz", bins=GOLDEN, work=work, reference=LATEST)


def test_arm_is_the_one_of_the_file(arm: ArmConfig) -> None:
    train = arm.train
    assert (arm.tag, arm.model.width, arm.model.core) == ("proof", 64, 1)
    assert (train.num_steps, train.batch_tokens, train.lr) == (STEPS, 2048, 3e-3)
    assert (train.sampling, train.copy_alpha, train.rewarm_steps) == ("random", False, 0)
    assert (arm.model.coda_alpha, arm.model.integer_products) == (False, False)


def test_next_losses_are_the_references(arm: ArmConfig, tmp_path: Path) -> None:
    assert train(_job(arm, tmp_path))["status"] == "done"
    records = read_metrics(tmp_path / "metrics.jsonl")
    expected = json.loads((GOLDEN / "losses.json").read_text())["lm_loss_by_step"]
    logs = [r for r in records if r["event"] == "log"]
    found = {r["step"] - 1: r["loss"] for r in logs}
    assert list(found) == list(range(FIRST, STEPS))
    for record, loss in zip(logs, found.values(), strict=True):
        kept = 1 - record["dropped"] / 2048  # the reference divides by dropped targets too
        step = record["step"] - 1
        assert loss * kept == pytest.approx(expected[str(step)], abs=TOLERANCE)
    (growth,) = (r for r in records if r["event"] == "growth")
    assert growth["step"] == GROWTH
    assert records[0]["tokens"] == FIRST * 2048
    assert records[0]["elapsed_s"] >= 5.1  # the reference's own seconds count

    # cut after its first own checkpoint, the run goes on from that and not from the file
    checkpoints = tmp_path / "checkpoints"
    shutil.rmtree(checkpoints / "step_00000012")
    (tmp_path / "outcome.json").unlink()
    assert train(_job(arm, tmp_path))["status"] == "done"
    again = [r["loss"] for r in read_metrics(tmp_path / "metrics.jsonl") if r["event"] == "log"]
    assert again == list(found.values())


def _model(arm: ArmConfig) -> Shadow:
    return Shadow(arm.model, Table.load(GOLDEN / "table.npz"))


def test_moments_come_back_by_name(arm: ArmConfig) -> None:
    found = read_continuation(LATEST, _model(arm), arm.train)
    content = torch.load(LATEST, weights_only=True)
    assert (found.step, found.generator["bit_generator"]) == (FIRST, "PCG64")
    (optimizer,) = content["opt"]
    names = list(content["state"])
    for name in ("alpha", "core.0.f2.weight", "out_proj.weight"):
        state = optimizer["state"][names.index(name)]
        assert torch.equal(found.moments[f"{name}.exp_avg_sq"], state["exp_avg_sq"])
        assert float(found.moments[f"{name}.step"]) == FIRST
        assert torch.equal(found.weights[name], content["state"][name])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"opt": None}, "hold opt, step"),
        ({"opt": []}, "one AdamW's state of 30 weights"),
        ({"opt": [{"state": {}, "param_groups": [{"params": list(range(30))}]}]}, "KeyError"),
        ({"opt": [{"state": {}, "param_groups": [{"params": [0]}]}]}, "30 weights"),
    ],
)
def test_file_that_cannot_go_on_is_refused(
    change: dict[str, Any], named: str, arm: ArmConfig, tmp_path: Path
) -> None:
    content = {**torch.load(LATEST, weights_only=True), **change}
    path = tmp_path / "proof_final.pt"
    torch.save({k: v for k, v in content.items() if v is not None}, path)
    with pytest.raises(CheckpointError, match=named):
        read_continuation(path, _model(arm), arm.train)


def test_run_that_reads_other_data_is_refused(arm: ArmConfig) -> None:
    with pytest.raises(ConfigError, match="sampling: must be 'random'"):
        read_continuation(LATEST, _model(arm), arm.train.replace(sampling="epoch"))
    with pytest.raises(ConfigError, match=r"12288 tokens.* 24576"):
        read_continuation(LATEST, _model(arm), arm.train.replace(batch_tokens=4096))
    wider = arm.model.replace(core=2)
    with pytest.raises(CheckpointError, match=r"core\.1\."):
        read_continuation(LATEST, _model(arm.replace(model=wider)), arm.train)


def test_context_lengths_of_a_cfg(tmp_path: Path) -> None:
    def lengths(text: str, *given: LengthStage) -> list[tuple[float, int]]:
        content = torch.load(LATEST, weights_only=True)
        cfg = {**content["cfg"], "len_stages": text, "bs": 16, "tokens": 32_768 * 9, "micro_k4": 2}
        torch.save({**content, "cfg": cfg}, tmp_path / "proof_latest.pt")
        arm = reference_arm(tmp_path / "proof_latest.pt", given)
        return [(s.from_frac, s.ctx_tokens) for s in arm.train.lengths]

    staged = [(0.0, 2048), (0.92, 4096), (0.97, 8192)]
    assert lengths("0.92:4096,0.97:8192") == lengths("0:2048, 0.92:4096, .97:8192") == staged
    with pytest.raises(CheckpointError, match="share:tokens"):
        lengths("4096@0.9")
    assert lengths("4096@0.9", LengthStage(from_frac=0, ctx_tokens=2048)) == [(0.0, 2048)]
