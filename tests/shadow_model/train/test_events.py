"""Event files hold what the metrics hold, once, also after a resume."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from shadow_model.train.events import EventFiles
from shadow_model.train.telemetry import read_metrics
from shadow_model.train.trainer import TrainJob, train


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def test_a_run_writes_its_metrics(data: Any, arm: Any, tmp_path: Path) -> None:
    folder, work = tmp_path / "events", tmp_path / "work"
    train(TrainJob(arm=arm, table=data.table_path, bins=data.bins, work=work, events=folder))
    records = [r for r in read_metrics(work / "metrics.jsonl") if r["event"] == "log"]
    found = read(folder).Scalars("training/loss")
    assert [e.step for e in found] == [r["step"] for r in records]
    assert [e.value for e in found] == pytest.approx([r["loss"] for r in records], rel=1e-6)
    tags = read(folder).Tags()["scalars"]
    assert {"training/loss text", "held out, 2 loops/loss", "training/lr"} <= set(tags)


def record(step: int, loss: float) -> dict[str, Any]:
    return {"event": "log", "step": step, "loss": loss, "kinds": {"text": {"loss": None}}}


def test_a_resumed_run_hides_what_it_writes_anew(tmp_path: Path) -> None:
    for first, loss in ((0, 9.0), (2, 1.0)):
        events = EventFiles(tmp_path, first)
        for step in range(first + 1, 5):
            events.write(record(step, loss))
        events.close()
    found = read(tmp_path).Scalars("training/loss")
    assert [(e.step, e.value) for e in found] == [(1, 9.0), (2, 9.0), (3, 1.0), (4, 1.0)]


def test_without_the_extra_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    events = EventFiles(tmp_path / "none", 0)
    events.write(record(1, 1.0))
    events.close()
    assert not (tmp_path / "none").exists()
