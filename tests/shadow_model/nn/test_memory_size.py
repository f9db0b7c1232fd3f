"""What memories take is said before it is taken, and refused where it cannot fit."""

import logging

import pytest
import torch

from shadow_model.errors import ConfigError
from shadow_model.nn import memory_size
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.memory_size import announce_training, available_bytes, memory_need
from shadow_model.nn.model import Shadow
from shadow_model.table.synthetic import synthetic_table

FULL = ModelConfig(engram_entries=8_000_000)


def test_the_full_size() -> None:
    need = memory_need(FULL)
    assert need.cells == pytest.approx(512e6, rel=1e-3)
    assert need.training_bytes == pytest.approx(6.2e9, rel=0.01)  # 6.1 and the counts of rows
    assert need.exported_bytes == pytest.approx(102.4e6, rel=1e-3)
    assert memory_need(ModelConfig()) == (0, 0, 0, 0)


def test_it_is_announced_before_anything_is_allocated(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_size, "available_bytes", lambda _: 1 << 40)
    with caplog.at_level(logging.INFO):
        announce_training(FULL)
    cells = f"{memory_need(FULL).cells:,} cells"
    assert f"2 memories of 8,000,000 rows, {cells}: 6.21 GB in training" in caplog.text
    assert "102.4 MB exported" in caplog.text


def test_the_host_says_what_is_free() -> None:
    free = available_bytes(torch.device("cpu"))
    assert free is None or 0 < free < 1 << 50


@pytest.mark.parametrize(("free_gb", "fits"), [(6.3, True), (6.1, False)])
def test_training_that_cannot_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, free_gb: float, fits: bool
) -> None:
    monkeypatch.setattr(memory_size, "available_bytes", lambda _: int(free_gb * 1e9))
    if fits:
        announce_training(FULL)
        return
    with pytest.raises(ConfigError, match=r"6\.21 GB .* found 6\.10 GB free\. Lower model\.engram"):
        announce_training(FULL)


def test_a_model_that_no_machine_holds_is_refused() -> None:
    table = synthetic_table(64, 1)
    config = ModelConfig(width=32, heads=4, engram_entries=1 << 40)
    with pytest.raises(ConfigError, match="engram_entries"):
        Shadow(config, table)
