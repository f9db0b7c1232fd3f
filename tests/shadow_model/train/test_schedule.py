"""Schedules against the reference's values, and their exact properties."""

import math

import pytest

from shadow_model.nn.config import ModelConfig
from shadow_model.train.config import ArmConfig, TrainConfig
from shadow_model.train.schedule import Phase, final_loops, growth_step, lr_at, phase_at

STEPS = 1000
# The reference's learning rate at its step s, counted from 0, of 1000 steps with peak 3e-4. It
# warms up from 0, so its first update does nothing; ours of step s is that of its step s + 1.
REFERENCE_LR = {
    1: 1.4999999999999999e-05,
    10: 0.00015,
    19: 0.000285,
    20: 0.0003,
    21: 0.0002999993063330627,
    500: 0.00016932696297217346,
    600: 0.00012658877580481063,
    919: 3.45256384821218e-05,
    920: 3.441519348973103e-05,
    970: 3.062381975185823e-05,
    999: 3.0000693666937266e-05,
}
REFERENCE_CTX = {0: 2048, 500: 2048, 919: 2048, 920: 4096, 969: 4096, 970: 8192, 999: 8192}
REFERENCE_LOOPS = {0: 2, 599: 2, 600: 4, 900: 4}


def _arm(model: ModelConfig | None = None, **train: object) -> ArmConfig:
    fields = {"tokens": STEPS * 32_768, "rewarm_steps": 0, **train}
    config = TrainConfig.parse(fields, "test")
    return ArmConfig(tag="test", model=model or ModelConfig(), train=config)


@pytest.mark.parametrize("step", REFERENCE_LR)
def test_learning_rate_is_the_references_one_step_on(step: int) -> None:
    # relative 1e-12: the same formula in float64, summed in another order
    assert lr_at(_arm().train, step - 1) == pytest.approx(REFERENCE_LR[step], rel=1e-12)


@pytest.mark.parametrize("step", REFERENCE_LR)
def test_lagging_learning_rate_is_the_references(step: int) -> None:
    train = _arm(lr_lag_steps=1).train
    assert lr_at(train, step) == pytest.approx(REFERENCE_LR[step], rel=1e-12)
    assert lr_at(train, 0) == 0


def test_first_update_learns_and_last_has_the_floor() -> None:
    train = _arm().train
    assert lr_at(train, 0) == pytest.approx(train.lr / 20)
    assert lr_at(train, STEPS - 1) == pytest.approx(train.lr * train.floor_frac, rel=1e-12)


@pytest.mark.parametrize("step", REFERENCE_CTX)
def test_context_is_the_references(step: int) -> None:
    assert phase_at(_arm(), step).ctx_tokens == REFERENCE_CTX[step]


@pytest.mark.parametrize("step", REFERENCE_LOOPS)
def test_loops_are_the_references(step: int) -> None:
    assert phase_at(_arm(), step).loops == REFERENCE_LOOPS[step]


def test_phases_of_the_whole_run() -> None:
    arm, seen = _arm(), list[Phase]()
    for step in range(STEPS):
        phase = phase_at(arm, step)
        if phase not in seen:
            seen.append(phase)
    assert seen == [
        Phase(2048, 2, False, 1),
        Phase(2048, 4, False, 2),
        Phase(4096, 4, True, 2),
        Phase(8192, 4, True, 2),
    ]


def test_flat_model_never_grows_but_lengthens_as_the_loop_does() -> None:
    arm = _arm(ModelConfig(flat=10))
    assert {phase_at(arm, s).loops for s in range(STEPS)} == {1}
    assert final_loops(arm) == 1
    assert phase_at(arm, 700) == Phase(2048, 1, False, 1)
    assert phase_at(arm, 980) == Phase(8192, 1, True, 2)


@pytest.mark.parametrize("steps", [7, 12, 200, 1000])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.55, 0.6, 0.7, 0.999, 1.0])
def test_growth_step_is_the_first_with_more_loops(steps: int, share: float) -> None:
    arm = _arm(tokens=steps * 32_768, growth_at_frac=share)
    loops = [phase_at(arm, s).loops for s in range(steps)]
    expected = loops.index(4) if 4 in loops and loops[0] == 2 else None
    assert growth_step(arm.train) == expected


def test_learning_rate_warms_up_again_after_growth() -> None:
    train = _arm(rewarm_steps=40).train
    plain = train.replace(rewarm_steps=0)
    shares = [lr_at(train, s) / lr_at(plain, s) for s in range(STEPS)]
    assert shares[600:640] == pytest.approx([(i + 1) / 40 for i in range(40)])
    assert shares[:600] + shares[640:] == [1.0] * 960
    assert [lr_at(train, s, flat=True) for s in range(STEPS)] == [
        lr_at(plain, s) for s in range(STEPS)
    ]
    same_loops = train.replace(loops=(2, 2))
    assert lr_at(same_loops, 600) == lr_at(plain, 600)


def test_growth_at_the_end_never_comes() -> None:
    arm = _arm(growth_at_frac=1.0)
    assert {phase_at(arm, s).loops for s in range(STEPS)} == {2}


def test_warm_hold_decay_holds_then_falls_to_the_floor() -> None:
    train = _arm(decay="warm_hold_decay").train
    rates = [lr_at(train, step) / train.lr for step in range(STEPS)]
    hold_end = int(STEPS * 5 / 7)
    assert rates[18] == pytest.approx(0.95)
    assert rates[19:hold_end] == [1.0] * (hold_end - 19)
    assert all(a > b for a, b in zip(rates[hold_end - 1 :], rates[hold_end:], strict=False))
    assert rates[-1] == pytest.approx(train.floor_frac)
    middle = hold_end + (STEPS - hold_end) // 2
    fraction = (middle - hold_end) / (STEPS - hold_end)
    expected = 0.1 + 0.9 * math.pow(1 - fraction, 1.5)
    assert rates[middle - 1] == pytest.approx(expected, rel=1e-12)


def test_one_step_run_has_a_schedule() -> None:
    train = TrainConfig.parse({"tokens": 32_768}, "test")
    assert train.num_steps == 1
    assert lr_at(train, 0) == train.lr
