"""Training with memories of n-grams: beside the body, resumed bit for bit, exported at the end."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch.utils.flop_counter import FlopCounterMode

from shadow_model.data.text import Pieces
from shadow_model.nn.config import ModelConfig
from shadow_model.table.canonical import canonical_of_table
from shadow_model.table.synthetic import synthetic_spans
from shadow_model.train.checkpoint import load_checkpoint
from shadow_model.train.config import ArmConfig, TrainJob
from shadow_model.train.device import choose_device
from shadow_model.train.flops import token_flops
from shadow_model.train.run import new_learner
from shadow_model.train.schedule import Phase, lr_at
from shadow_model.train.step import Learner, TokenBatch, update
from shadow_model.train.telemetry import read_metrics
from shadow_model.train.trainer import train

PHASE = Phase(ctx_tokens=32, loops=2, sparse=False, micro_batches=1)
TIMES = ("elapsed_s", "train_s", "tokens_per_s", "peak_bytes")
ROWS = ["engrams.0.rows.weight", "engrams.1.rows.weight"]


def _with_memories(arm: ArmConfig, **fields: Any) -> ArmConfig:
    memory = {"engram_entries": 1024, "engram_width": 64, **fields}
    return arm.replace(model=arm.model.replace(**memory))


def _learner(arm: ArmConfig, data: Any) -> Learner:
    return new_learner(arm, data.table, choose_device("cpu", "float32", 1))


def _batch(data: Any, seed: int = 3) -> TokenBatch:
    ids = torch.from_numpy(synthetic_spans(data.table.layout, 4, 32, seed))
    return TokenBatch(ids[:, :-1], ids[:, 1:], None)


@pytest.fixture(scope="module")
def with_pieces(data: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of the table, its bins and the pieces that its rows spell."""
    folder = tmp_path_factory.mktemp("with_pieces") / "data"
    shutil.copytree(data.bins, folder)
    Pieces.train(["The the THE cat Cat sat on the mat. " * 40], 300).save(folder / "pieces.model")
    return folder


def _job(arm: ArmConfig, folder: Path, work: Path) -> TrainJob:
    return TrainJob(arm=arm, table=folder / "table.npz", bins=folder, work=work)


def _records(work: Path) -> list[dict[str, Any]]:
    records = read_metrics(work / "metrics.jsonl")
    return [{k: v for k, v in r.items() if k not in TIMES} for r in records]


def _after_calls(number: int) -> Callable[[], bool]:
    calls = iter(range(number))
    return lambda: next(calls, None) is None


@pytest.fixture(scope="module")
def whole(arm: ArmConfig, with_pieces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the work folder of an uninterrupted run."""
    work = tmp_path_factory.mktemp("whole")
    assert train(_job(_with_memories(arm), with_pieces, work))["status"] == "done"
    return work


def test_the_body_learns_and_is_clipped_as_without_memories(data: Any, arm: ArmConfig) -> None:
    """While rows are zero the body's gradients are those of a plain body, to the bit."""
    clipped = arm.replace(train=arm.train.replace(clip_norm=1e-3))
    plain, learner = _learner(clipped, data), _learner(_with_memories(clipped), data)
    for one in (plain, learner):
        update(one, _batch(data), PHASE, 0)
    theirs = dict(learner.model.named_parameters())
    for name, parameter in plain.model.named_parameters():
        assert torch.equal(parameter, theirs[name]), name
        if parameter.grad is not None:
            assert torch.equal(parameter.grad, theirs[name].grad), name
    norms = [theirs[name].grad.coalesce().values().norm() for name in ROWS]  # type: ignore[union-attr]
    assert float(torch.stack(norms).norm()) == pytest.approx(1e-3, rel=1e-3)


def test_rows_step_at_five_times_the_learning_rate(data: Any, arm: ArmConfig) -> None:
    learner = _learner(_with_memories(arm), data)
    stats = update(learner, _batch(data), PHASE, 0)
    largest = learner.model.get_parameter(ROWS[0]).detach().abs().max()
    assert float(largest) == pytest.approx(5 * lr_at(arm.train, 0), rel=1e-3)
    assert len(stats.norms) == len(learner.names)
    norms = dict(zip(learner.names, stats.norms.tolist(), strict=True))
    assert learner.names[-2:] == ROWS
    assert all(norms[name] > 0 for name in ROWS)
    assert learner.model.engrams[0].rows.scale.min() > 0


def test_micro_batches_change_nothing_but_rounding(data: Any, arm: ArmConfig) -> None:
    rows = []
    for parts in (1, 2):
        # a loss of many terms and few rows: gradients stay away from zero, where Adam has no slope
        learner = _learner(_with_memories(arm, engram_places=("post",)), data)
        update(learner, _batch(data), PHASE._replace(micro_batches=parts), 0)
        learner.memory.zero_grad()
        rows.append(learner.memory.tensors()["engrams.0.rows.weight.exp_avg"])
    torch.testing.assert_close(rows[0], rows[1], rtol=1e-3, atol=1e-7)


def test_the_loss_falls_where_only_memories_can_learn(data: Any, arm: ArmConfig) -> None:
    learner, batch = _learner(_with_memories(arm), data), _batch(data)
    losses = []
    for _ in range(8):
        out = learner.model(batch.ids)
        loss = learner.readout.loss(out.hidden, batch.ids, batch.targets).total
        learner.memory.zero_grad()
        loss.backward()
        learner.memory.clip(1.0)
        learner.memory.step(0.1)
        learner.model.refresh()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 0.1


def test_canonical_ids_are_of_the_runs_pieces(whole: Path, with_pieces: Path, data: Any) -> None:
    model = load_checkpoint(whole / "final")
    pieces = Pieces.load(with_pieces / "pieces.model")
    expected = canonical_of_table(data.table.layout, data.table.lang_old_ids, pieces)
    assert model.canonical.tolist() == expected.tolist()
    assert len(set(expected.tolist())) < len(expected)


@pytest.mark.parametrize("calls", [5, 20])  # before growth, and after it
def test_resumed_is_uninterrupted_bit_for_bit(
    calls: int, whole: Path, arm: ArmConfig, with_pieces: Path, tmp_path: Path
) -> None:
    job = _job(_with_memories(arm), with_pieces, tmp_path)
    assert train(job, stop=_after_calls(calls))["status"] == "stopped"
    assert train(job)["status"] == "done"
    assert _records(tmp_path) == _records(whole)
    for name in ("model", "optimizer"):
        path = Path("checkpoints") / "step_00000012" / f"{name}.safetensors"
        ours, theirs = (safetensors.torch.load_file(w / path) for w in (tmp_path, whole))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[n], theirs[n]) for n in ours)
    for place in ("engram_0", "engram_1"):
        path = Path("final") / f"{place}.safetensors"
        assert (tmp_path / path).read_bytes() == (whole / path).read_bytes()


def test_the_final_export_reads_as_the_final_weights(whole: Path, data: Any) -> None:
    model, packed = (load_checkpoint(whole / "final") for _ in range(2))
    assert all(e.rows.weight.any() for e in model.engrams)
    packed.load_memories(whole / "final")
    with torch.no_grad():
        ids = _batch(data).ids
        assert torch.equal(model(ids, 4).hidden, packed(ids, 4).hidden)


def test_a_flat_control_trains_with_memories(
    arm: ArmConfig, with_pieces: Path, tmp_path: Path
) -> None:
    train_config = arm.train.replace(tokens=4 * arm.train.batch_tokens)
    flat = _with_memories(arm.replace(train=train_config), flat=3)
    assert train(_job(flat, with_pieces, tmp_path))["status"] == "done"
    assert load_checkpoint(tmp_path / "final").engrams[0].rows.scale.min() > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_rows_learn_on_a_gpu_as_on_a_cpu(data: Any, arm: ArmConfig) -> None:
    rows = []
    for kind in ("cpu", "cuda"):
        device = choose_device(kind, "float32", 1)  # type: ignore[arg-type]
        learner = new_learner(_with_memories(arm, quantise=False), data.table, device)
        batch = _batch(data)
        on_device = TokenBatch(batch.ids.to(device.device), batch.targets.to(device.device), None)
        for step in range(3):
            update(learner, on_device, PHASE, step)
        rows.append(learner.memory.tensors()["engrams.0.rows.weight.exp_avg"].cpu())
    torch.testing.assert_close(rows[0], rows[1], rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("places", [("pre",), ("pre", "post")])
def test_projections_of_memories_are_counted(
    data: Any, arm: ArmConfig, places: tuple[str, ...]
) -> None:
    """By torch's count of matrix products; gate and convolution are no products of matrices."""
    counts = []
    for one in (arm, _with_memories(arm, engram_places=places)):
        learner = _learner(one, data)
        with FlopCounterMode(display=False) as counter:
            update(learner, _batch(data), PHASE, 0)
        counts.append(counter.get_total_flops())
    model: ModelConfig = _with_memories(arm, engram_places=places).model
    elementwise = len(places) * 6 * model.width * 5
    stated = token_flops(model, 32, 2, 100).memories - elementwise
    assert counts[1] - counts[0] == 4 * 32 * stated
    assert token_flops(arm.model, 32, 2, 100).memories == 0
