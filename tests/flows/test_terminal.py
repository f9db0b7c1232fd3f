"""Progress in the terminal: a bar where there is one, plain lines elsewhere, brief errors."""

import io
import logging
import sys
from collections.abc import Iterator
from types import TracebackType

import pytest
from prefect.logging.configuration import ensure_logging_setup
from prefect.logging.handlers import PrefectConsoleHandler
from rich.console import Console

from flows import terminal
from flows.terminal import shown_progress
from shadow_model.errors import DataError
from tasks.progress import PROGRESS, RunProgress

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


@pytest.fixture
def console() -> Iterator[PrefectConsoleHandler]:
    """A console handler of Prefect that writes into memory."""
    ensure_logging_setup()
    handler = PrefectConsoleHandler(io.StringIO())
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("prefect.terminal_test")
    logger.addHandler(handler)
    logger.propagate = False
    yield handler
    logger.removeHandler(handler)


def written(handler: PrefectConsoleHandler) -> str:
    return str(handler.stream.getvalue())


def test_a_terminal_gets_a_bar_that_goes_when_done(
    console: PrefectConsoleHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Console(file=console.stream, force_terminal=True, width=100)
    monkeypatch.setattr(terminal, "_tidied_console", lambda: shared)
    report = RunProgress("1 table")
    with shown_progress():
        report(1, 4, "rows")
    assert "1 table" in written(console)
    assert "25 %  rows" in written(console)
    assert not logging.getLogger(PROGRESS).handlers


def test_plain_lines_are_seldom(
    console: PrefectConsoleHandler,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(terminal, "_tidied_console", lambda: Console(file=console.stream))
    clock = iter([0.0, 16.0, 17.0, 40.0])
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(clock))
    with caplog.at_level(logging.INFO, "prefect"), shown_progress():
        for done in (1, 2, 3, 4):
            record = {"label": "1 table", "done": done, "total": 4, "what": "rows"}
            logging.getLogger(PROGRESS).info("x", extra=record)
    shown = [record.getMessage() for record in caplog.records if record.name == "prefect"]
    assert shown == ["1 table: rows, 50 %", "1 table: rows, 100 %"]


def exc_info(error: Exception) -> ExcInfo:
    try:
        raise error
    except type(error) as caught:
        return type(caught), caught, sys.exc_info()[2]


@pytest.mark.parametrize(
    ("error", "shown"), [(DataError("a", "b", "c", "d"), False), (ValueError("bug"), True)]
)
def test_only_bugs_show_their_traceback(
    console: PrefectConsoleHandler, error: Exception, shown: bool
) -> None:
    logger = logging.getLogger("prefect.terminal_test")
    with shown_progress():
        logger.error("failed", exc_info=exc_info(error))
    assert "failed" in written(console)
    assert ("Traceback" in written(console)) is shown


def test_quiet_shows_no_progress(
    console: PrefectConsoleHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Console(file=console.stream, force_terminal=True, width=100)
    monkeypatch.setattr(terminal, "_tidied_console", lambda: shared)
    with shown_progress(quiet=True):
        RunProgress("1 table")(1, 4, "rows")
    assert written(console) == ""
