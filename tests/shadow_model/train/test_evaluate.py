"""Held-out statistics against plain sums, and the standard error against repeated draws."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from shadow_model.errors import NumericsError
from shadow_model.nn.transitions import TRANSITIONS
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


def _held_out(sums: np.ndarray, counts: np.ndarray) -> HeldOut:
    return HeldOut(sums, counts, sums * 0, counts * 0, None, 0)


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


def test_transitions_are_those_of_every_single_target(data: Any, arm: ArmConfig) -> None:
    device = choose_device("cpu", "auto", 1)
    learner, layout = new_learner(arm, data.table, device), data.table.layout
    (batch,) = _batches(data, (4,))
    row_bytes = torch.arange(layout.num_lang) + 1
    found = evaluate(
        learner.model,
        learner.readout,
        [batch],
        loops=2,
        sparse=False,
        device=device,
        row_bytes=row_bytes,
    )
    learner.model.eval()
    with torch.no_grad():
        hidden = learner.model(batch.ids, 2).hidden
        nats, kinds, kept = learner.readout.token_losses(hidden, batch.ids, batch.targets)
    assert kept.all()
    sums, counts, spelled = np.zeros((4, 4)), np.zeros((4, 4), int), np.zeros(4, int)
    for window, step in np.ndindex(*batch.targets.shape):
        target, inside = int(batch.targets[window, step]), int(kinds[window, step]) > 0
        marker = target >= layout.marks["image"]
        name = ("span->end" if marker else "span->band") if inside else None
        name = name or ("text->marker" if marker else "text->text")
        place = TRANSITIONS.index(name)
        sums[window, place] += float(nats[window, step])
        counts[window, place] += 1
        spelled[window] += target + 1 if name == "text->text" else 0
    assert (counts.sum(0) > 0).all()
    assert found.transition_counts.tolist() == counts.tolist()
    # relative 1e-6: sums of float32 values in float64
    np.testing.assert_allclose(found.transition_sums, sums, rtol=1e-6)
    assert found.text_bytes is not None
    assert found.text_bytes.tolist() == spelled.tolist()


def test_summary() -> None:
    sums = np.array([[2.0, 3.0, 0.0, 0.0], [4.0, 3.0, 0.0, 0.0]])
    counts = np.array([[2, 1, 0, 0], [2, 1, 0, 0]])
    summary = summarise(_held_out(sums, counts))
    assert summary["loss"] == 2.0
    assert summary["kinds"]["text"]["loss"] == 1.5
    # windows of equal size: the mean's standard error, |1 - 2| / √2 / √2
    assert summary["kinds"]["text"]["standard_error"] == pytest.approx(0.5)
    assert summary["kinds"]["picture"]["standard_error"] == 0
    nothing = {"loss": None, "standard_error": None, "bits": None, "count": 0}
    assert summary["kinds"]["clip"] == nothing
    assert (summary["windows"], summary["targets"]) == (2, 6)
    assert summary["bits"] == pytest.approx(2 / math.log(2))
    assert summary["text_bits_per_byte"] is None


def test_bits_per_byte_are_those_of_language_rows() -> None:
    sums, counts = np.array([[4.0, 1.0, 0, 0], [2.0, 1.0, 0, 0]]), np.ones((2, 4), np.int64)
    held_out = _held_out(sums, counts)._replace(transition_sums=sums, text_bytes=np.array([20, 10]))
    summary = summarise(held_out)
    assert summary["text_bits_per_byte"] == pytest.approx(6 / math.log(2) / 30)
    assert summary["text_bits_per_byte_error"] == 0  # the same in both windows


def test_standard_error_is_the_spread_of_repeated_evaluations() -> None:
    rng = np.random.default_rng(0)
    ratios, errors = [], []
    for _ in range(400):
        counts = np.zeros((50, len(KINDS)), np.int64)
        counts[:, 0] = rng.integers(1, 30, 50)
        level = rng.normal(3, 0.5, 50)
        sums = counts * level[:, None]
        summary = summarise(_held_out(sums, counts))
        ratios.append(summary["loss"])
        errors.append(summary["standard_error"])
    # 10 %: 400 draws give the spread to 3.5 %, and the estimate is slightly low by construction
    assert np.mean(errors) == pytest.approx(np.std(ratios), rel=0.1)


def test_non_finite_window_is_named(data: Any, arm: ArmConfig) -> None:
    device = choose_device("cpu", "auto", 1)
    learner = new_learner(arm, data.table, device)
    learner.readout.get_buffer("bias_sound")[5] = torch.nan  # only the second window has sound
    with pytest.raises(NumericsError, match=r"non-finite windows \[1\]"):
        evaluate(
            learner.model,
            learner.readout,
            _batches(data, (2,)),
            loops=2,
            sparse=False,
            device=device,
        )
