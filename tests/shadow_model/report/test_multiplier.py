"""The multiplier of curves whose compute is known, and none beyond what was measured."""

import math
from pathlib import Path
from typing import Any

import pytest

from shadow_model.report.build import build_report
from shadow_model.report.config import ReportConfig
from shadow_model.report.multiplier import flops_at, multipliers
from shadow_model.report.runs import Evaluation, Run


def run(*curve: tuple[float, float]) -> Run:
    """Return a run that was evaluated at these (FLOPs, loss)."""
    evaluations = [
        Evaluation(step=i, tokens=i, elapsed_s=i, loss=loss, flops=flops)
        for i, (flops, loss) in enumerate(curve)
    ]
    return Run("proof", {}, (), tuple(evaluations), (), (), {})


def by_law(factor: float, *flops: float) -> Run:
    """Return a run whose loss falls by one nat for each tenfold compute."""
    return run(*((factor * c, 17 - math.log10(c)) for c in flops))


def test_arm_that_needs_twice_the_compute() -> None:
    """Loss is linear in log compute here, so that interpolation is exact (float64 rounding)."""
    places = multipliers(by_law(1, 1e12, 1e14), by_law(2, 1e12, 1e13, 1e15))
    assert [p.loss for p in places] == pytest.approx([3.0, 3.4, 3.8, 4.2, 4.6])
    assert [p.multiplier for p in places] == pytest.approx([2.0] * 5)
    assert places[0].proof_flops == pytest.approx(1e14)


def test_nothing_is_extrapolated() -> None:
    early, late = by_law(1, 1e12, 1e13), by_law(1, 1e14, 1e15)
    assert multipliers(early, late) == []
    assert multipliers(late, early) == []
    curve = [(1e12, 5.0), (1e13, 4.0)]
    assert flops_at(curve, 5.1) is None
    assert flops_at(curve, 3.9) is None
    assert flops_at(curve, 5.0) == pytest.approx(1e12)
    assert flops_at([], 4.0) is None


def test_first_evaluation_before_any_update_is_no_place() -> None:
    assert multipliers(run((0.0, 9.0)), run((0.0, 9.0))) == []
    curves = (run((0.0, 9.0), (1e12, 5.0), (1e13, 4.0)), run((0.0, 9.0), (3e12, 5.0), (3e13, 4.0)))
    assert [p.multiplier for p in multipliers(*curves)] == pytest.approx([3.0] * 5)


def test_loss_that_rises_in_between_is_reached_once() -> None:
    assert flops_at([(1e12, 5.0), (1e13, 4.0), (1e14, 4.5), (1e15, 3.0)], 4.0) == pytest.approx(
        1e13
    )


def test_page_states_it(chain: Any, tmp_path: Path) -> None:
    build_report(tmp_path, chain.inputs(), ReportConfig())
    page = (tmp_path / "report.html").read_text()
    assert "Compute multiplier of the looped core over flat" in page
