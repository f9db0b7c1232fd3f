"""One update: micro-batches change nothing but memory, and kept targets are the denominator."""

from typing import Any

import pytest
import torch

from shadow_model.nn.body import boundary_alphas
from shadow_model.table.synthetic import synthetic_spans
from shadow_model.train.config import ArmConfig
from shadow_model.train.device import choose_device
from shadow_model.train.interval import Interval, StepStats
from shadow_model.train.run import new_learner
from shadow_model.train.schedule import Phase, lr_at
from shadow_model.train.step import Learner, TokenBatch, count_kept, update

SHORT = Phase(32, 2, False, 1)


def _learner(data: Any, arm: ArmConfig, **model: object) -> Learner:
    changed = arm.replace(model=arm.model.replace(**model))
    return new_learner(changed, data.table, choose_device("cpu", "auto", 1))


def _batch(data: Any, windows: int = 4, tokens: int = 32, seed: int = 0) -> TokenBatch:
    ids = torch.from_numpy(synthetic_spans(data.table.layout, windows, tokens, seed))
    return TokenBatch(ids[:, :-1], ids[:, 1:], torch.zeros(windows, dtype=torch.int8))


def _gradients(learner: Learner) -> dict[str, torch.Tensor]:
    named = learner.model.named_parameters()
    return {n: p.grad.clone() for n, p in named if p.grad is not None}


def test_update_changes_every_parameter_by_the_scheduled_rate(data: Any, arm: ArmConfig) -> None:
    learner = _learner(data, arm)
    before = {n: p.detach().clone() for n, p in learner.model.named_parameters()}
    stats = update(learner, _batch(data), SHORT, 0)
    assert int(stats.counts.sum()) == 128
    assert int(stats.dropped) == 0
    assert float(stats.index_kl) > 0
    lr = lr_at(learner.config, 0)
    assert {g["lr"] for g in learner.optimizer.param_groups} == {lr}
    for name, parameter in learner.model.named_parameters():
        if name == "alpha":
            changed = (parameter != before[name]).nonzero()[:, 0]
            assert changed.tolist() == list(boundary_alphas(learner.model.config, 2))
        else:
            assert not torch.equal(parameter, before[name]), name
        # Adam's first step is at most lr, and decay adds lr·0.01·|w|
        assert (parameter - before[name]).abs().max() < 1.1 * lr


def test_model_is_refreshed_after_an_update(data: Any, arm: ArmConfig) -> None:
    learner = _learner(data, arm)
    update(learner, _batch(data), SHORT, 0)
    update(learner, _batch(data, seed=1), SHORT, 1)  # raises NumericsError on stale weights


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_micro_batches_give_the_gradient_of_the_whole(
    parts: int, data: Any, arm: ArmConfig
) -> None:
    whole, split = (_learner(data, arm, quantise=False) for _ in range(2))
    # the index loss draws other positions for each micro-batch: its branch is left out
    batch = _batch(data)
    one = update(whole, batch, SHORT, 0)
    many = update(split, batch, SHORT._replace(micro_batches=parts), 0)
    assert torch.equal(one.counts, many.counts)
    # relative 1e-5: float32 sums of other lengths
    torch.testing.assert_close(one.sums, many.sums, rtol=1e-5, atol=0)
    expected, found = _gradients(whole), _gradients(split)
    for name, gradient in expected.items():
        if ".iq." not in name and ".ik." not in name:
            error = (gradient - found[name]).norm() / gradient.norm()
            assert error < 1e-4, name  # float32 sums, and a clipping norm with the index branch


def test_dropped_targets_do_not_count(data: Any, arm: ArmConfig) -> None:
    """A batch with a target outside its row set learns as if that target were not there."""
    layout = data.table.layout
    batch = _batch(data)
    spoiled = batch.targets.clone()
    text = (batch.ids < layout.num_lang) & (spoiled < layout.num_lang)
    row, column = text.nonzero()[0].tolist()
    spoiled[row, column] = layout.offsets["image"] + 5
    learner = _learner(data, arm)
    bad = TokenBatch(batch.ids, spoiled, batch.initial)
    assert int(count_kept(learner.readout, batch)) == 128
    assert int(count_kept(learner.readout, bad)) == 127
    stats = update(learner, bad, SHORT._replace(micro_batches=2), 0)
    assert int(stats.dropped) == 1
    assert int(stats.counts.sum()) == 127
    hidden = learner.model(batch.ids, 2).hidden
    assert int(learner.readout.loss(hidden, batch.ids, spoiled).counts.sum()) == 127


def test_window_without_two_key_blocks_has_no_index_loss(data: Any, arm: ArmConfig) -> None:
    learner = _learner(data, arm, index_block=32)
    stats = update(learner, _batch(data), SHORT, 0)
    assert float(stats.index_kl) == 0
    assert learner.model.pre[0].iq.weight.grad is None


def test_same_step_twice_is_the_same_bits(data: Any, arm: ArmConfig) -> None:
    def run() -> list[StepStats]:
        learner = _learner(data, arm)
        phases = (SHORT, SHORT._replace(loops=4, sparse=True, micro_batches=2))
        return [update(learner, _batch(data, seed=s), p, s) for s, p in enumerate(phases)]

    for first, second in zip(run(), run(), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_interval_sums_updates(data: Any, arm: ArmConfig) -> None:
    learner = _learner(data, arm)
    names = [n for n, _ in learner.model.named_parameters()]
    interval = Interval(names, torch.device("cpu"))
    all_stats = [update(learner, _batch(data, seed=s), SHORT, s) for s in range(3)]
    for step, stats in enumerate(all_stats):
        interval.add(stats, step, torch.zeros(4).numpy(), 128)
    means = interval.take()
    total = sum(float(s.sums.sum()) for s in all_stats)
    # relative 1e-6: float32 sums added in float64
    assert means.loss == pytest.approx(total / 384, rel=1e-6)
    assert means.tokens == 384
    assert sum(k["count"] for k in means.kinds.values()) == 384
    norms = [float(s.norms.norm()) for s in all_stats]
    assert means.gradient_norm == pytest.approx(sum(norms) / 3, rel=1e-6)


def test_index_loss_is_a_mean_or_a_sum_over_block_calls(data: Any, arm: ArmConfig) -> None:
    mean = _learner(data, arm)
    summed = new_learner(
        arm.replace(train=arm.train.replace(index_reduction="sum")), data.table, mean.device
    )
    found = [float(update(one, _batch(data), SHORT, 0).index_kl) for one in (mean, summed)]
    # 4 block calls: prelude, core twice, coda; relative 1e-5: float32 sums
    assert found[1] == pytest.approx(4 * found[0], rel=1e-5)


def test_decay_leaves_the_alphas_alone(data: Any, arm: ArmConfig) -> None:
    groups = _learner(data, arm).optimizer.param_groups
    decay = {p.ndim: group["weight_decay"] for group in groups for p in group["params"]}
    assert decay == {1: 0.0, 2: arm.train.weight_decay}
