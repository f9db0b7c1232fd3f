"""The verdict follows the figures, and says what they cannot show."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shadow_model.report.pairing import TOTAL
from shadow_model.report.runs import Run, read_run
from shadow_model.report.verdict import judge, read_at

Metrics = Callable[..., list[dict[str, Any]]]
MakeRun = Callable[..., Run]
SMALL_TOKENS = 100_000_000


@pytest.fixture
def make_run(tmp_path: Path, metrics: Metrics) -> MakeRun:
    def make(name: str, **changes: Any) -> Run:
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in metrics(name, **changes)))
        return read_run(name, path)

    return make


@pytest.mark.parametrize(
    ("gain", "outcome", "opening"),
    [
        (0.05, "better", "The looped core beats the flat control: after 1.20 M"),
        (-0.05, "worse", "The flat control beats the looped core: after 1.20 M"),
        (0.01, "undecided", "Neither arm is ahead: after 1.20 M"),
    ],
)
def test_outcome_needs_two_standard_errors(
    make_run: MakeRun, gain: float, outcome: str, opening: str
) -> None:
    verdict = judge(make_run("proof", gain=gain), make_run("flat", gain=0.0), SMALL_TOKENS)
    assert verdict.outcome == outcome
    assert verdict.headline.startswith(opening)
    total = verdict.comparisons[0].differences[TOTAL]
    # The fixture's curve ends (1 - e^-4) of its way: 0.982 of the gain, to 1e-9 in float64.
    assert total.value == pytest.approx(gain * 0.98168, abs=1e-5)
    assert total.standard_error == pytest.approx(0.012 * 2**0.5)


def test_paired_errors_are_used_where_both_arms_end(make_run: MakeRun) -> None:
    arms = (make_run("proof", gain=0.01), make_run("flat", gain=0.0, flops_per_token=2e7))
    assert judge(*arms, SMALL_TOKENS).outcome == "undecided"
    verdict = judge(*arms, SMALL_TOKENS, {TOTAL: 0.001, "text": 0.001})
    assert verdict.outcome == "better"
    assert "text better" in verdict.by_kind
    assert "clip undecided" in verdict.by_kind
    flops = next(c for c in verdict.comparisons if c.axis == "flops")
    assert verdict.comparisons[0].paired
    assert not flops.paired  # the looped core stands before its end there


def test_small_run_and_single_seed_are_told(make_run: MakeRun) -> None:
    arms = (make_run("proof"), make_run("flat", gain=0.0))
    assert any("small run (1.20 M tokens" in c for c in judge(*arms, SMALL_TOKENS).caveats)
    caveats = judge(*arms, small_run_tokens=0).caveats
    assert not any("small run" in c for c in caveats)
    assert any("One seed" in c for c in caveats)


def test_longer_proof_is_read_in_mid_schedule_and_marked(make_run: MakeRun) -> None:
    verdict = judge(make_run("proof", tokens=6_000_000), make_run("flat"), SMALL_TOKENS)
    tokens = verdict.comparisons[0]
    assert tokens.at == 1_200_000
    assert tokens.mid_schedule == ["proof"]
    assert tokens.proof.interpolated
    assert (tokens.proof.windows, tokens.flat.windows) == (30, 90)
    assert not tokens.flat.interpolated
    assert any("looped core was in the middle of the schedule" in c for c in verdict.caveats)


def test_run_ended_early_is_marked(make_run: MakeRun) -> None:
    verdict = judge(make_run("proof"), make_run("flat", annealed=False), SMALL_TOKENS)
    assert any("flat control was in the middle" in c for c in verdict.caveats)


def test_equal_flops_are_compared_and_told(make_run: MakeRun) -> None:
    arms = (make_run("proof", flops_per_token=4e7), make_run("flat", flops_per_token=2e7))
    verdict = judge(*arms, SMALL_TOKENS)
    flops = next(c for c in verdict.comparisons if c.axis == "flops")
    assert flops.at == pytest.approx(2.4e13)
    assert flops.mid_schedule == ["proof"]
    cost = next(c for c in verdict.caveats if "FLOPs" in c)
    assert "2.00 times" in cost
    assert "behind by" in cost
    assert "not annealed there" in cost


def test_missing_arm_is_no_comparison(make_run: MakeRun) -> None:
    assert judge(None, None, 0).outcome == "missing"
    only = judge(make_run("proof"), None, 0)
    assert only.outcome == "missing"
    assert only.headline.startswith("Only the looped core has been trained")
    assert judge(None, make_run("flat"), 0).headline.startswith("Only the flat control")


def test_reading_interpolates_and_never_extrapolates(make_run: MakeRun) -> None:
    run = make_run("flat")
    first, second = run.evaluations[1:3]
    reading = read_at(run, "tokens", (first.tokens + second.tokens) / 2)
    assert reading is not None
    # Half way between two float64 losses.
    assert reading.losses[TOTAL].loss == pytest.approx((first.loss + second.loss) / 2, abs=1e-12)
    assert reading.interpolated
    exact = read_at(run, "tokens", second.tokens)
    assert exact is not None
    assert exact.losses[TOTAL].loss == second.loss
    assert not exact.interpolated
    assert read_at(run, "tokens", 2 * run.tokens) is None


def test_other_context_length_is_told(make_run: MakeRun) -> None:
    flat = make_run("flat")
    last = flat.evaluations[-1].model_copy(update={"ctx_tokens": 1024})
    longer = Run(**{**flat.__dict__, "evaluations": (*flat.evaluations[:-1], last)})
    caveats = judge(make_run("proof"), longer, 0).caveats
    assert any("different context lengths ([512, 1024])" in c for c in caveats)
