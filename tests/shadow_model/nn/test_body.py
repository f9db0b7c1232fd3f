"""Order of the executed blocks, boundaries and growth."""

import pytest
import torch

from shadow_model.errors import ConfigError
from shadow_model.nn.body import Body, boundary_alphas, executed_calls
from shadow_model.nn.config import ModelConfig, num_block_calls

LOOPED = ModelConfig(width=16, heads=2, prelude=1, core=2, coda=1)
FLAT = ModelConfig(width=16, heads=2, flat=3)


def test_looped_order() -> None:
    calls = executed_calls(LOOPED, 2)
    names = [f"{c.group}{c.place}" for c in calls]
    assert names == ["pre0", "core0", "core1", "core0", "core1", "coda0"]
    assert [c.opens_loop for c in calls] == [False, True, False, False, False, False]
    assert [c.boundary for c in calls] == [None, None, 0, None, 7, None]
    shared = executed_calls(LOOPED.replace(coda_alpha=False), 2)
    assert [c.boundary for c in shared] == [None, None, 0, None, 1, None]


def test_core_of_one_block_opens_and_closes_its_pass() -> None:
    calls = executed_calls(LOOPED.replace(core=1, prelude=0, coda_alpha=False), 2)
    assert [(c.opens_loop, c.boundary) for c in calls] == [(True, 0), (False, 1), (False, None)]


def test_flat_order() -> None:
    calls = executed_calls(FLAT, 4)
    assert [(c.group, c.place, c.boundary) for c in calls] == [
        ("blocks", i, None) for i in range(3)
    ]


@pytest.mark.parametrize("config", [LOOPED, FLAT])
def test_as_many_calls_as_stated(config: ModelConfig) -> None:
    assert len(executed_calls(config, 3)) == num_block_calls(config, 3)


def test_growth_repeats_the_alphas() -> None:
    body = Body(LOOPED.replace(coda_alpha=False))
    body.alpha.data = torch.arange(8.0)
    body.grow(2, 5)
    assert body.alpha.tolist() == [0, 1, 0, 1, 0, 5, 6, 7]


@pytest.mark.parametrize(
    ("loops", "expected"),
    [
        ((2, 4), [0, 0, 0, 3, 4, 5, 6, 7]),
        ((3, 8), [0, 1, 0, 1, 0, 1, 0, 7]),
        ((1, 3), [7, 7, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_growth_leaves_the_coda_its_own_alpha(
    loops: tuple[int, int], expected: list[float]
) -> None:
    body = Body(LOOPED)
    body.alpha.data = torch.arange(8.0)
    body.grow(*loops)
    assert body.alpha.tolist() == expected
    assert boundary_alphas(LOOPED, loops[1])[-1] == 7


def test_one_pass_has_a_boundary_and_every_block_once() -> None:
    calls = executed_calls(LOOPED, 1)
    assert len({(c.group, c.place) for c in calls}) == len(calls) == 4
    assert [c.boundary for c in calls] == [None, None, 7, None]


def test_growth_past_the_alphas_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_alphas"):
        Body(LOOPED).grow(2, 9)


def test_growth_of_a_flat_body_changes_nothing() -> None:
    Body(FLAT).grow(2, 4)
    assert "alpha" not in Body(FLAT).state_dict()
