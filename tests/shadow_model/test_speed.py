"""The speed measurement: figures that agree with one another."""

from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from shadow_model import speed
from shadow_model.errors import ConfigError
from shadow_model.nn.config import ModelConfig
from shadow_model.speed import SpeedConfig, measure_ceiling, run_speed
from shadow_model.train.device import choose_device
from shadow_model.train.flops import flops_per_token

MODEL = ModelConfig(width=32, heads=2, prelude=1, core=1, coda=1, index_block=8, index_top=2)
CONFIG = SpeedConfig(
    num_lang=200,
    windows=2,
    ctx_tokens=64,
    loops=2,
    sparse=True,
    micro_batches=2,
    warmup_steps=1,
    timed_steps=3,
    device="cpu",
    threads=1,
)


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    return run_speed(CONFIG, MODEL)


def test_figures_agree(figures: dict[str, Any]) -> None:
    seconds = figures["step_ms_median"] / 1e3
    # relative 1e-2: the figures are rounded
    assert figures["tokens_per_s"] * seconds == pytest.approx(128, rel=1e-2)
    expected = flops_per_token(MODEL, 64, 2, 200 + 4 + 7, sparse=True)
    assert figures["flops_per_token"] == expected
    assert figures["flops_per_s"] * seconds == pytest.approx(128 * expected, rel=1e-2)
    ratio = figures["flops_per_s"] / figures["ceiling_flops_per_s"]
    assert figures["utilisation"] == pytest.approx(ratio, abs=1e-4)
    assert 0 < figures["utilisation"] < 1
    assert figures["step_ms_spread"] >= 0


def test_memory_covers_weights_rows_and_optimiser(figures: dict[str, Any]) -> None:
    assert figures["peak_bytes"] > 4 * 512 * 28_000  # the bands' rows alone


def test_flat_model_and_progress() -> None:
    told: list[float] = []
    few = CONFIG.replace(timed_steps=2, sparse=False, micro_batches=1)
    listen = lambda done, total, what: told.append(done)  # noqa: ARG005, E731
    figures = run_speed(few, MODEL.replace(flat=2), listen)
    assert figures["loops"] == 1
    assert told == [0, 1, 2, 3]


def test_ceiling_is_a_plausible_rate() -> None:
    assert 1e9 < measure_ceiling(choose_device("cpu", "auto", 1)) < 1e13


def test_empty_micro_batch_is_refused() -> None:
    with pytest.raises(ConfigError, match="one would be empty"):
        SpeedConfig.parse({"windows": 2, "micro_batches": 3}, "speed")


def test_too_many_loops_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_alphas"):
        run_speed(CONFIG.replace(loops=9), MODEL)


def test_command_prints_the_figures() -> None:
    options = (
        "--width 32 --heads 2 --prelude 1 --core 1 --coda 1 --loops 2 --ctx 32 --windows 1 "
        "--rows 100 --steps 2 --warmup 1 --device cpu --threads 1"
    )
    result = CliRunner().invoke(speed.app, options.split())
    assert result.exit_code == 0, result.output
    assert "tokens_per_s" in result.output
    assert "utilisation" in result.output


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda() -> None:
    figures = run_speed(CONFIG.replace(device="cuda", threads=None), MODEL)
    assert figures["dtype"] == "bfloat16"
    assert figures["peak_bytes"] > 0
