"""Progress: throttled lines for the terminal, an artifact only for long work."""

import logging
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from tasks import progress
from tasks.progress import PROGRESS, RunProgress


@pytest.fixture
def artifacts(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Percentages that were published, instead of an API."""
    shown: list[float] = []

    def create(progress: float, **_fields: Any) -> UUID:
        shown.append(progress)
        return uuid4()

    def update(_artifact: UUID, progress: float, **_fields: Any) -> None:
        shown.append(progress)

    monkeypatch.setattr(progress, "create_progress_artifact", create)
    monkeypatch.setattr(progress, "update_progress_artifact", update)
    return shown


def test_short_work_has_no_artifact(artifacts: list[float]) -> None:
    report = RunProgress("1 table")
    report(0, 2, "rows")
    report(2, 2, "rows")
    assert artifacts == []


def test_long_work_ends_at_the_whole(
    artifacts: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 10.0, 10.1, 20.0, 20.1])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    report = RunProgress("1 table")
    for done in (1, 2, 3, 4):
        report(done, 4, "rows")
    assert artifacts == [25.0, 75.0, 100.0], "the second call came too early"


def test_records_carry_what_a_bar_needs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, PROGRESS):
        RunProgress("1 table")(1, 4, "rows")
    fields = caplog.records[0].__dict__
    assert [fields[name] for name in ("label", "done", "total", "what")] == [
        "1 table",
        1,
        4,
        "rows",
    ]


def test_an_api_that_is_away_does_not_end_the_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(**_fields: Any) -> UUID:
        raise httpx.ConnectError("no route")

    monkeypatch.setattr(progress, "create_progress_artifact", fail)
    monkeypatch.setattr(progress, "_ARTIFACT_EVERY_S", 0.0)
    RunProgress("1 table")(1, 2, "rows")
    assert "progress could not be shown: no route" in caplog.text
