"""The formula's published values, and its sums over phases."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from shadow_model.nn.config import ModelConfig
from shadow_model.table.layout import KINDS, REQUIRED_CONTROLS, Layout
from shadow_model.table.synthetic import synthetic_table
from shadow_model.train.config import ArmConfig, TrainConfig
from shadow_model.train.device import choose_device
from shadow_model.train.flops import (
    flops_per_token,
    flops_until,
    match_flops,
    mean_keys,
    mean_rows,
    phase_spans,
    token_flops,
)
from shadow_model.train.run import new_learner
from shadow_model.train.schedule import Phase, phase_at
from shadow_model.train.step import TokenBatch, update

ROWS = 65_604


@pytest.mark.parametrize(("flat", "loops", "mega"), [(10, 1, 362), (0, 2, 498), (0, 4, 768)])
def test_published_values(flat: int, loops: int, mega: int) -> None:
    flops = flops_per_token(ModelConfig(flat=flat), 2048, loops, ROWS)
    assert round(flops / 1e6) == mega


@pytest.mark.parametrize("shape", [{"flat": 3}, {"prelude": 1, "core": 1, "coda": 1}])
@pytest.mark.parametrize("tokens", [64, 200])
def test_matrix_products_are_those_that_torch_counts(shape: dict[str, int], tokens: int) -> None:
    """Every product of an update but attention, which torch does not count on a CPU."""
    # widths without padding: 8·48/3 and the rows of the set are multiples of what they are filled
    # up to; float products, one a matrix
    model = ModelConfig(
        width=48, heads=4, index_block=16, index_top=4, integer_products=False, **shape
    )
    table = synthetic_table(101, 0)
    batch = 2 * tokens
    train = TrainConfig.parse(
        {
            "tokens": 4 * batch,
            "batch_tokens": batch,
            "lengths": [{"from_frac": 0, "ctx_tokens": tokens}],
            "micro_batches_large": 1,
            "evaluate_ctx_tokens": 8,
        },
        "test",
    )
    arm = ArmConfig(tag="a", model=model, train=train)
    learner = new_learner(arm, table, choose_device("cpu", "float32", 1))
    ids = torch.randint(0, 101, (2, tokens + 1), generator=torch.Generator().manual_seed(0))
    with FlopCounterMode(display=False) as counter:
        update(learner, TokenBatch(ids[:, :-1], ids[:, 1:], None), Phase(tokens, 2, False, 1), 0)
    counted = counter.get_flop_counts()["Global"]
    assert not any("attention" in str(operator) for operator in counted)
    rows = mean_rows(table.layout, {})
    assert rows == 112
    flops = token_flops(model, tokens, 2, rows)
    expected = batch * (flops.blocks + flops.ends + flops.readout + flops.index_loss)
    expected += batch * 2 * len(KINDS)  # the sums of the losses by kind
    assert sum(counted.values()) == expected


def test_selection_scores_are_counted_where_they_are_made() -> None:
    model = ModelConfig(width=32, heads=4, index_block=8, index_top=2, index_width=4)
    keys = [t // 8 * 8 if t // 8 > 2 else 0 for t in range(61)]
    calls = 2 + 6 + 2
    found = token_flops(model, 61, 1, ROWS, sparse=True).selection
    assert found == pytest.approx(calls * 2 * 4 * np.mean(keys), rel=1e-12)
    assert flops_per_token(model, 61, 1, ROWS, sparse=True) > found > 0
    assert token_flops(model, 61, 1, ROWS).selection == 0
    assert token_flops(model, 24, 1, ROWS, sparse=True).selection == 0


@pytest.mark.parametrize("ctx", [100, 256, 300])
def test_mean_keys_counts_what_a_query_sees(ctx: int) -> None:
    model = ModelConfig(width=32, heads=4, index_block=16, index_top=3)
    assert mean_keys(model, ctx, sparse=False) == np.mean([t + 1 for t in range(ctx)])
    seen = [min(t // 16, 3) * 16 + t % 16 + 1 for t in range(ctx)]
    assert mean_keys(model, ctx, sparse=True) == pytest.approx(np.mean(seen))


def test_sparse_costs_the_same_where_everything_is_selected() -> None:
    model = ModelConfig()
    assert mean_keys(model, 17 * 128, sparse=True) == mean_keys(model, 17 * 128, sparse=False)


def test_mean_rows_of_a_mixture() -> None:
    layout = Layout(num_lang=1000, controls=REQUIRED_CONTROLS)
    shared = 4 + len(REQUIRED_CONTROLS)
    assert mean_rows(layout, {}) == 1000 + shared
    assert mean_rows(layout, {"text": 3, "picture": 1}) == (3 * 1000 + 16_384) / 4 + shared


def test_phases_are_summed_step_by_step() -> None:
    train = TrainConfig(tokens=200 * 32_768)
    arm = ArmConfig(tag="a", model=ModelConfig(), train=train)
    expected = 0.0
    for step in range(150):
        phase = phase_at(arm, step)
        each = flops_per_token(arm.model, phase.ctx_tokens, phase.loops, ROWS, phase.sparse)
        expected += 32_768 * each
    # relative 1e-12: float64 sums of another order
    assert flops_until(arm, ROWS, 150) == pytest.approx(expected, rel=1e-12)
    spans = list(phase_spans(arm, 200))
    assert [s[0] for s in spans] == [0, 120, 184, 194]
    assert [s[1] for s in spans] == [120, 184, 194, 200]


@pytest.mark.parametrize("tokens", [200, 1000])
def test_matched_arm_costs_what_the_other_does(tokens: int) -> None:
    train = TrainConfig(tokens=tokens * 32_768)
    proof = ArmConfig(tag="proof", model=ModelConfig(), train=train)
    flat = ArmConfig(tag="flat", model=ModelConfig(flat=10), train=train.replace(tokens=32_768))
    matched = match_flops(flat, proof, ROWS)
    wanted = flops_until(proof, ROWS, proof.train.num_steps)
    found = flops_until(matched, ROWS, matched.train.num_steps)
    longest = 32_768 * flops_per_token(flat.model, 8192, 1, ROWS, sparse=True)
    assert abs(found - wanted) <= longest
    share = matched.train.tokens / proof.train.tokens
    assert 1.5 < share < 2.2
    assert matched.train.max_epochs == pytest.approx(4 * share)
    assert matched.model == flat.model
