"""The metrics file survives kills and resumes; console lines keep their form."""

from pathlib import Path

import pytest

from shadow_model.errors import DataError
from shadow_model.train.telemetry import Metrics, console_line, read_metrics

KINDS = {
    "text": {"loss": 5.0},
    "picture": {"loss": 6.25},
    "sound": {"loss": None},
    "clip": {"loss": 7.0},
}
LOG = {
    "event": "log",
    "step": 50,
    "ctx_tokens": 2048,
    "loops": 2,
    "loss": 5.4321,
    "index_kl": 0.0123,
    "kinds": KINDS,
    "tokens_per_s": 1234.5,
    "elapsed_s": 5400.0,
}


def _record(step: int) -> dict[str, object]:
    return {"event": "log", "step": step}


def test_records_come_back(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl", keep=0)
    for step in (1, 2, 3):
        metrics.write(_record(step))
    assert read_metrics(tmp_path / "metrics.jsonl") == [_record(s) for s in (1, 2, 3)]
    metrics.sync()
    metrics.close()


def test_resume_doubles_nothing_and_drops_a_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"event":"log","step":1}\n{"event":"log","step":2}\n{"event":"log","st')
    assert len(read_metrics(path)) == 2
    metrics = Metrics(path, keep=1)
    assert metrics.num_records == 1
    metrics.write(_record(2))
    metrics.close()
    assert metrics.num_records == 2
    assert read_metrics(path) == [_record(1), _record(2)]


@pytest.mark.parametrize("line", ["not JSON", "[1]", '{"event": "log"}'])
def test_damage_elsewhere_is_named_by_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"event":"log","step":1}\n' + line + '\n{"event":"log","step":2}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl:2"):
        read_metrics(path)


def test_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent"):
        read_metrics(tmp_path / "absent.jsonl")


def test_log_line() -> None:
    assert console_line(LOG) == (
        "step 50  ctx 2048  K 2  loss 5.4321  index-KL 0.0123  "
        "text 5.000  picture 6.250  sound -  clip 7.000  1234 tok/s  1.50 h"
    )


def test_held_out_line() -> None:
    record = {**LOG, "event": "evaluate", "standard_error": 0.0042}
    assert console_line(record) == (
        "HELD-OUT step 50  ctx 2048  loss 5.4321  ±0.0042  "
        "text 5.000  picture 6.250  sound -  clip 7.000  K 2"
    )


def test_growth_line_and_quiet_records() -> None:
    growth = {"event": "growth", "step": 9, "from_loops": 2, "loops": 4}
    assert console_line(growth) == "GROWTH step 9  K 2 -> 4"
    assert console_line({"event": "start", "step": 0}) is None
