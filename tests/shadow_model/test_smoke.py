"""The smoke check passes on a sound model, and each check can fail."""

from typing import Any

import pytest
import torch

from shadow_model import smoke
from shadow_model.errors import NumericsError
from shadow_model.nn.config import ModelConfig
from shadow_model.smoke import Check, SmokeConfig, measure, run_smoke
from shadow_model.train.interval import StepStats

# two windows of 256 tokens hold every kind; 16 blocks of 16, of which 5 are read
CONFIG = SmokeConfig(
    model=ModelConfig(width=32, heads=2, prelude=1, core=1, coda=1, index_block=16, index_top=4),
    num_lang=100,
    windows=2,
    ctx_tokens=256,
    steps=10,
    growth_step=5,
    lr=1e-2,
    device="cpu",
    threads=1,
)
CHECKS = (
    "row sets",
    "gradients",
    "boundary",
    "loss falls",
    "alpha moved",
    "index KL",
    "loops count",
    "ternary weights",
    "int8 activations",
    "int4 keys and values",
    "sparse = masked",
    "chunked loss = plain",
)


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    return run_smoke(CONFIG)


def test_sound_model_passes_every_check(figures: dict[str, Any]) -> None:
    assert figures["passed"]
    assert tuple(row["name"] for row in figures["rows"]) == CHECKS
    assert all(row["passed"] for row in figures["rows"])
    assert len(figures["losses"]) == CONFIG.steps
    assert figures["last_loss"] < figures["first_loss"] - 1


def test_progress_is_told() -> None:
    told: list[tuple[float, float]] = []
    few = CONFIG.replace(steps=4, growth_step=2, loss_fall=0.0)
    run_smoke(few, lambda done, total, what: told.append((done, total)))  # noqa: ARG005
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4)]


def test_loss_that_does_not_fall_fails_and_names_it() -> None:
    with pytest.raises(NumericsError, match=r"loss falls: .*at least 99 nats"):
        run_smoke(CONFIG.replace(steps=4, growth_step=2, loss_fall=99.0))


def _failed(monkeypatch: pytest.MonkeyPatch, name: str, broken: object) -> set[str]:
    monkeypatch.setattr(smoke, name, broken)
    _, checks = measure(CONFIG.replace(steps=4, growth_step=2, loss_fall=0.0))
    return {check.name for check in checks if not check.passed}


def test_lost_gradient_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = smoke.update

    def without_index(*args: Any) -> StepStats:
        stats = whole(*args)
        norms = stats.norms.clone()
        norms[0] = 0
        return stats._replace(norms=norms)

    assert _failed(monkeypatch, "update", without_index) == {"gradients"}


def test_dropped_target_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = smoke.update

    def dropping(*args: Any) -> StepStats:
        return whole(*args)._replace(dropped=torch.tensor(1))

    assert _failed(monkeypatch, "update", dropping) == {"row sets"}


def test_fourth_weight_value_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def four_values(weight: torch.Tensor) -> torch.Tensor:
        return weight.div(weight.abs().max()).mul(1.9).round() + (weight > 0.9 * weight.max())

    assert _failed(monkeypatch, "ternary", four_values) == {"ternary weights"}


def test_too_many_levels_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _failed(monkeypatch, "key_value", lambda t, _bits: t) == {"int4 keys and values"}
    monkeypatch.undo()
    unrounded = lambda x: (x * 1e4, x)  # noqa: E731
    assert _failed(monkeypatch, "int8_parts", unrounded) == {"int8 activations"}


def test_sparse_attention_that_looks_ahead_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*args: Any) -> torch.Tensor:
        everything = torch.ones(1, args[0].shape[1], args[0].shape[1], dtype=torch.bool)
        return smoke._masked_attention(*args[:3], everything)

    assert _failed(monkeypatch, "sparse_attention", wrong) == {"sparse = masked"}


def test_loss_over_fewer_rows_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = smoke._plain_loss
    shifted = lambda *args: plain(*args) * 1.001  # noqa: E731
    assert _failed(monkeypatch, "_plain_loss", shifted) == {"chunked loss = plain"}


def test_terminal_table_marks_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [Check("first", "hold", "1", True), Check("second", "hold", "2", False)]
    smoke.print_checks(checks, {"seconds": 1.5, "tokens_per_s": 10.0})
    shown = capsys.readouterr().out
    assert "ok" in shown
    assert "FAILED" in shown
    assert "1.5 s, 10 tokens/s" in shown
