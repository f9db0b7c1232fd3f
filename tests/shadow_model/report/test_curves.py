"""Curves show both arms, their held-out points, growth and the unigram level."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shadow_model.report.curves import loss_curve, throughput_curve
from shadow_model.report.pairing import TOTAL
from shadow_model.report.runs import Run, read_run

Metrics = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def runs(tmp_path: Path, metrics: Metrics) -> list[Run]:
    found = []
    for name in ("proof", "flat"):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in metrics(name)))
        found.append(read_run(name, path))
    return found


@pytest.mark.parametrize("kind", [TOTAL, "text", "clip"])
def test_curve_names_what_it_shows(runs: list[Run], kind: str) -> None:
    svg = loss_curve(runs, kind, 5.4, 400)
    assert svg is not None
    said = ("looped core, held out", "flat control, held out", "unigram entropy", "loops 2 → 4")
    assert all(text in svg for text in said)
    assert "var(--proof)" in svg
    assert "var(--flat)" in svg


def test_curve_of_one_arm_names_no_other(runs: list[Run]) -> None:
    svg = loss_curve(runs[1:], "text", None, 400)
    assert svg is not None
    assert "looped core" not in svg
    assert "unigram" not in svg
    assert "loops" not in svg


def test_long_curve_is_thinned(runs: list[Run]) -> None:
    full, thin = (loss_curve(runs, "text", None, points) for points in (400, 20))
    assert full is not None
    assert thin is not None
    assert len(thin) < len(full)


def test_kind_that_no_arm_has_is_no_curve(runs: list[Run]) -> None:
    assert loss_curve(runs, "novel", None, 400) is None
    assert loss_curve([], TOTAL, None, 400) is None


def test_throughput_needs_intervals(runs: list[Run]) -> None:
    assert "tokens a second" in str(throughput_curve(runs, 400))
    bare = [Run(**{**run.__dict__, "intervals": ()}) for run in runs]
    assert throughput_curve(bare, 400) is None
