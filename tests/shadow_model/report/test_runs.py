"""Metrics are read typed; garbled ones are refused by file and line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shadow_model.errors import DataError
from shadow_model.report.runs import read_run

Metrics = Callable[..., list[dict[str, Any]]]


def write(folder: Path, records: list[dict[str, Any]]) -> Path:
    path = folder / "metrics.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_run_has_all_that_was_recorded(tmp_path: Path, metrics: Metrics) -> None:
    run = read_run("proof", write(tmp_path, metrics("proof")))
    assert run.name == "proof"
    assert run.start["parameters"] == 1_870_000
    assert len(run.intervals) == 60
    assert [e.step for e in run.evaluations] == [0, 100, 200, 300, 400, 500, 600]
    assert [(g.from_loops, g.loops) for g in run.growths] == [(2, 4)]
    assert run.annealed
    assert run.tokens == 1_200_000
    assert run.evaluations[-1].kinds["clip"].standard_error == pytest.approx(0.048)


def test_evaluations_around_growth_are_kept_apart(tmp_path: Path, metrics: Metrics) -> None:
    run = read_run("proof", write(tmp_path, metrics("proof")))
    found = [(e.step, e.loops, e.loss) for e in run.around_growth]
    assert found == [(360, 2, 6.5), (360, 4, 6.53)]


def test_step_with_two_loop_counts_keeps_the_first_on_the_curve(
    tmp_path: Path, metrics: Metrics
) -> None:
    records = metrics("proof")
    number = next(i for i, r in enumerate(records) if r["event"] == "evaluate" and r["step"] == 100)
    records.insert(number + 1, {**records[number], "loops": 4, "loss": 99.0})
    run = read_run("proof", write(tmp_path, records))
    assert [e.step for e in run.evaluations].count(100) == 1
    assert run.evaluations[1].loss < 99


def test_run_that_has_not_ended_is_not_annealed(tmp_path: Path, metrics: Metrics) -> None:
    run = read_run("flat", write(tmp_path, metrics("flat")[:-1]))
    assert run.final == {}
    assert not run.annealed


def test_kind_without_tokens_and_unknown_events_are_taken(tmp_path: Path) -> None:
    place = {"step": 0, "tokens": 0, "elapsed_s": 0.0}
    empty = {"loss": None, "standard_error": None, "count": 0}
    evaluation = {"event": "evaluate", **place, "loss": 1.0, "kinds": {"clip": empty}}
    run = read_run("flat", write(tmp_path, [{"event": "novel", "step": 0}, evaluation]))
    assert run.evaluations[0].kinds["clip"].loss is None
    assert run.evaluations[0].standard_error is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"loss": "low"}, "loss"),
        ({"kinds": 3}, "kinds"),
        ({"step": -1}, "step"),
        ({"tokens": None}, "tokens"),
    ],
)
def test_garbled_record_is_refused_by_line_and_field(
    tmp_path: Path, metrics: Metrics, change: dict[str, Any], said: str
) -> None:
    records = metrics("proof")
    number = next(i for i, record in enumerate(records) if record["event"] == "evaluate")
    records[number] = {**records[number], **change}
    with pytest.raises(DataError, match=said) as caught:
        read_run("proof", write(tmp_path, records))
    assert "metrics.jsonl" in caught.value.where


def test_line_that_is_no_json_and_absent_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="readable metrics"):
        read_run("proof", tmp_path / "metrics.jsonl")
    (tmp_path / "metrics.jsonl").write_text('{"event": "log"\n{}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl:1"):
        read_run("proof", tmp_path / "metrics.jsonl")


def test_run_without_evaluation_is_refused(tmp_path: Path, metrics: Metrics) -> None:
    records = [r for r in metrics("proof") if r["event"] != "evaluate"]
    with pytest.raises(DataError, match="at least one held-out evaluation"):
        read_run("proof", write(tmp_path, records))
