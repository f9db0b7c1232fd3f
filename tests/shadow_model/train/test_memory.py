"""The field that makes micro-batches smaller, in the phase that failed."""

import pytest

from shadow_model.data.inputs import SourceInput
from shadow_model.recipes import full, tiny
from shadow_model.train.config import ArmConfig
from shadow_model.train.memory import memory_advice


@pytest.fixture
def arm() -> ArmConfig:
    return full((SourceInput(name="books", kind="demo_text"),)).proof


def test_before_growth_and_at_the_first_length(arm: ArmConfig) -> None:
    assert memory_advice(arm, 0).startswith("set train.micro_batches to 2 (it is 1)")


@pytest.mark.parametrize("share", [0.6, 0.99])
def test_after_growth_and_at_a_longer_length(arm: ArmConfig, share: float) -> None:
    step = int(share * arm.train.num_steps) + 1
    assert memory_advice(arm, step).startswith("set train.micro_batches_large to 4 (it is 2)")


def test_the_advice_can_be_followed(arm: ArmConfig) -> None:
    train = arm.train
    while (advice := memory_advice(arm, arm.train.num_steps - 1)).startswith("set"):
        value = int(advice.split(" to ")[1].split()[0])
        train = train.replace(micro_batches_large=value)
        arm = arm.replace(train=train)
    assert "lower the longest train.lengths.ctx_tokens" in advice
    assert memory_advice(tiny().proof, 0).startswith("set train.micro_batches to 2")
