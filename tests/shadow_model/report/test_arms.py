"""Runs of several arms and seeds: a row each, their spread, and the control of equal FLOPs."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shadow_model.report.arms import Arms, Trained
from shadow_model.report.build import build_report
from shadow_model.report.config import ReportConfig
from shadow_model.report.inputs import ReportInputs

Metrics = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def trained(tmp_path: Path, metrics: Metrics) -> list[tuple[str, Path]]:
    """Two seeds of the looped core and of its control, and one control of equal FLOPs."""
    found = []
    plans = [
        ("proof", "proof", 0, {"gain": 0.05}),
        ("flat", "flat4", 0, {"gain": 0.0, "flops_per_token": 2e7}),
        (
            "matched",
            "flat4_matched",
            0,
            {"gain": 0.02, "flops_per_token": 2e7, "tokens": 2_400_600},
        ),
        ("proof", "proof", 1, {"gain": 0.06}),
        ("flat", "flat4", 1, {"gain": -0.01, "flops_per_token": 2e7}),
    ]
    for number, (stage, tag, seed, changes) in enumerate(plans):
        records = metrics(stage, **changes)
        records[0] |= {"tag": tag, "seed": seed}
        for record in records:
            if record["event"] == "evaluate":
                record["transitions"] = {"text->text": {"loss": 5.5, "count": 90}}
                record["text_bits_per_byte"] = 1.75
        folder = tmp_path / str(number)
        folder.mkdir()
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (folder / "metrics.jsonl").write_text(lines)
        found.append((stage, folder))
    return found


def arms_of(trained: list[tuple[str, Path]]) -> Arms:
    return Arms([Trained.read(*one) for one in trained])


def test_every_run_has_a_row_compared_with_the_proof_of_its_seed(
    trained: list[tuple[str, Path]],
) -> None:
    rows = arms_of(trained).table()
    assert [(r["tag"], r["seed"]) for r in rows] == [
        ("proof", 0),
        ("flat4", 0),
        ("flat4_matched", 0),
        ("proof", 1),
        ("flat4", 1),
    ]
    assert rows[0]["against"] == {}
    gaps = [rows[i]["against"]["tokens"]["value"] for i in (1, 4)]
    # the curves end (1 - e^-4) of their way: 0.982 of the gain, to 1e-5
    assert gaps == pytest.approx([0.05 * 0.98168, 0.07 * 0.98168], abs=1e-5)
    matched = rows[2]["against"]["flops"]
    assert matched["mid_schedule"] == []  # equal to a whole update: both stand at their ends
    assert matched["value"] == pytest.approx(0.03 * 0.98168, abs=1e-5)
    assert rows[0]["bits"] == pytest.approx(rows[0]["loss"] / math.log(2))
    assert rows[1]["multipliers"]


def test_spread_over_seeds(trained: list[tuple[str, Path]]) -> None:
    arms = arms_of(trained)
    proof, flat = arms.spread()
    assert (proof["tag"], proof["seeds"], flat["tag"]) == ("proof", 2, "flat4")
    total = proof["kinds"]["total"]
    assert total["high"] - total["low"] == pytest.approx(0.01 * 0.98168, abs=1e-5)
    # of two values: their difference over √2
    assert total["deviation"] == pytest.approx((total["high"] - total["low"]) / 2**0.5)
    gap = arms.gap_over_seeds("flat")
    assert gap is not None
    assert gap["mean"] == pytest.approx(0.06 * 0.98168, abs=1e-5)
    assert gap["standard_error"] == pytest.approx(0.01 * 0.98168, abs=1e-5)
    assert arms.gap_over_seeds("matched") is None


def test_verdict_rests_on_the_control_of_equal_flops(
    trained: list[tuple[str, Path]], tmp_path: Path
) -> None:
    inputs = ReportInputs(receipts=(), proof=trained[0][1], flat=trained[1][1], trained=trained[:3])
    figures = build_report(tmp_path, inputs, ReportConfig())
    assert "FLOP of training each" in figures["headline"]
    page = (tmp_path / "report.html").read_text()
    assert "control flat4_matched" in page
    assert "text → text" in page
    assert "1.750" in page
    assert "One seed an arm" in page


def test_seeds_are_told_in_the_verdict(trained: list[tuple[str, Path]], tmp_path: Path) -> None:
    seeds = [trained[i] for i in (0, 1, 3, 4)]
    inputs = ReportInputs(receipts=(), proof=seeds[0][1], flat=seeds[1][1], trained=seeds)
    build_report(tmp_path, inputs, ReportConfig())
    page = (tmp_path / "report.html").read_text()
    assert "Over 2 seeds of both arms" in page
    assert "One seed an arm" not in page
    assert "Spread over seeds" in page
