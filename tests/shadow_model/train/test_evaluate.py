"""Held-out statistics against plain sums, and the standard error against repeated draws."""

from typing import Any

import numpy as np
import pytest
import torch

from shadow_model.errors import NumericsError
from shadow_model.table.layout import KINDS
from shadow_model.table.synthetic import synthetic_spans
from shadow_model.train.config import ArmConfig
from shadow_model.train.device import choose_device
from shadow_model.train.evaluate import HeldOut, evaluate, summarise
from shadow_model.train.run import new_learner
from shadow_model.train.step import TokenBatch


def _batches(data: Any, sizes: tuple[int, ...]) -> list[TokenBatch]:
    total = sum(sizes)
    ids = torch.from_numpy(synthetic_spans(data.table.layout, total, 32, 5)).split(sizes)
    return [TokenBatch(part[:, :-1], part[:, 1:], None) for part in ids]


def test_sums_do_not_depend_on_batches_and_mode_is_kept(data: Any, arm: ArmConfig) -> None:
    device = choose_device("cpu", "auto", 1)
    learner = new_learner(arm, data.table, device)
    done: list[int] = []
    found = [
        evaluate(
            learner.model,
            learner.readout,
            _batches(data, sizes),
            loops=2,
            sparse=False,
            device=device,
            after_batch=done.append,
        )
        for sizes in ((4,), (1, 3))
    ]
    assert learner.model.training
    assert done == [4, 1, 4]
    assert np.array_equal(found[0].counts, found[1].counts)
    # relative 1e-3: products of other shapes flip single roundings of the int8 activations
    np.testing.assert_allclose(found[0].sums, found[1].sums, rtol=1e-3)
    (batch,) = _batches(data, (4,))
    learner.model.eval()
    with torch.no_grad():
        hidden = learner.model(batch.ids, 2).hidden
        loss = learner.readout.loss(hidden, batch.ids, batch.targets)
    # relative 1e-5: float32 against float64 sums of the same losses
    np.testing.assert_allclose(found[0].sums.sum(0), loss.sums.numpy(), rtol=1e-5)
    assert found[0].counts.sum(0).tolist() == loss.counts.tolist()


def test_summary() -> None:
    sums = np.array([[2.0, 3.0, 0.0, 0.0], [4.0, 3.0, 0.0, 0.0]])
    counts = np.array([[2, 1, 0, 0], [2, 1, 0, 0]])
    summary = summarise(HeldOut(sums, counts, 0))
    assert summary["loss"] == 2.0
    assert summary["kinds"]["text"]["loss"] == 1.5
    # windows of equal size: the mean's standard error, |1 - 2| / √2 / √2
    assert summary["kinds"]["text"]["standard_error"] == pytest.approx(0.5)
    assert summary["kinds"]["picture"]["standard_error"] == 0
    assert summary["kinds"]["clip"] == {"loss": None, "standard_error": None, "count": 0}
    assert (summary["windows"], summary["targets"]) == (2, 6)


def test_standard_error_is_the_spread_of_repeated_evaluations() -> None:
    rng = np.random.default_rng(0)
    ratios, errors = [], []
    for _ in range(400):
        counts = np.zeros((50, len(KINDS)), np.int64)
        counts[:, 0] = rng.integers(1, 30, 50)
        level = rng.normal(3, 0.5, 50)
        sums = counts * level[:, None]
        summary = summarise(HeldOut(sums, counts, 0))
        ratios.append(summary["loss"])
        errors.append(summary["standard_error"])
    # 10 %: 400 draws give the spread to 3.5 %, and the estimate is slightly low by construction
    assert np.mean(errors) == pytest.approx(np.std(ratios), rel=0.1)


def test_non_finite_window_is_named(data: Any, arm: ArmConfig) -> None:
    device = choose_device("cpu", "auto", 1)
    learner = new_learner(arm, data.table, device)
    learner.readout.get_buffer("bias_text")[5] = torch.nan
    with pytest.raises(NumericsError, match=r"non-finite windows \[1\]"):
        evaluate(
            learner.model,
            learner.readout,
            _batches(data, (2,)),
            loops=2,
            sparse=False,
            device=device,
        )
