"""The formula's published values, and its sums over phases."""

import numpy as np
import pytest

from shadow_model.nn.config import ModelConfig
from shadow_model.table.layout import REQUIRED_CONTROLS, Layout
from shadow_model.train.config import ArmConfig, TrainConfig
from shadow_model.train.flops import (
    flops_per_token,
    flops_until,
    mean_keys,
    mean_rows,
    phase_spans,
)
from shadow_model.train.schedule import phase_at

ROWS = 65_604


@pytest.mark.parametrize(("flat", "loops", "mega"), [(10, 1, 362), (0, 2, 498), (0, 4, 768)])
def test_published_values(flat: int, loops: int, mega: int) -> None:
    flops = flops_per_token(ModelConfig(flat=flat), 2048, loops, ROWS)
    assert round(flops / 1e6) == mega


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
