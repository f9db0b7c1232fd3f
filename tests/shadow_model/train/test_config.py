"""The training config reports every problem at once."""

import pytest

from shadow_model.errors import ConfigError
from shadow_model.nn.config import ModelConfig
from shadow_model.train.config import ArmConfig, TrainConfig


def _problems(**fields: object) -> str:
    with pytest.raises(ConfigError) as raised:
        TrainConfig.parse({"tokens": 1 << 20, **fields}, "recipe.toml")
    assert "recipe.toml" in str(raised.value)
    return str(raised.value)


def test_defaults_are_valid_and_give_whole_steps() -> None:
    assert TrainConfig(tokens=100_000).num_steps == 3


def test_batch_must_hold_whole_windows() -> None:
    text = _problems(batch_tokens=5000, lengths=[{"from_frac": 0, "ctx_tokens": 2048}])
    assert "5000 must be divisible by ctx_tokens 2048" in text


def test_micro_batch_must_not_be_empty() -> None:
    text = _problems(batch_tokens=8192, micro_batches_large=2)
    assert "8192 hold 1 windows of 8192 tokens" in text
    assert "one would be empty" in text


def test_all_problems_come_at_once() -> None:
    text = _problems(
        batch_tokens=3000,
        loops=[4, 2],
        betas=[0.9, 1.0],
        lengths=[{"from_frac": 0.5, "ctx_tokens": 2048}, {"from_frac": 0.1, "ctx_tokens": 4096}],
        evaluate_tokens=2048,
    )
    for part in ("ctx_tokens 2048", "ctx_tokens 4096", "loops", "betas", "lengths", "two windows"):
        assert part in text


def test_tokens_below_one_update() -> None:
    assert "at least batch_tokens" in _problems(tokens=100)


def test_hold_must_outlast_the_warm_up() -> None:
    text = _problems(decay="warm_hold_decay", warmup_frac=0.5, hold_frac=0.4)
    assert "hold_frac 0.4" in text


def test_misspelt_field_names_the_nearest() -> None:
    assert "did you mean 'weight_decay'" in _problems(weight_decy=0.1)


def test_more_loops_than_alphas() -> None:
    train = {"tokens": 1 << 20, "loops": [2, 9]}
    with pytest.raises(ConfigError, match="num_alphas 8"):
        ArmConfig.parse({"tag": "a", "model": {}, "train": train}, "recipe")
    flat = ModelConfig(flat=3)
    assert ArmConfig.parse({"tag": "a", "model": flat, "train": train}, "recipe").model.flat == 3


def test_tag_is_a_plain_file_name() -> None:
    with pytest.raises(ConfigError, match="tag"):
        ArmConfig.parse({"tag": "../x", "model": {}, "train": {"tokens": 1 << 20}}, "recipe")
