"""What a person sees in the terminal while a flow runs: log lines, and a bar a stage.

Without a terminal (a file, a CI log) progress comes as plain lines, seldom.
"""

import copy
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.logging.configuration import ensure_logging_setup
from prefect.logging.handlers import PrefectConsoleHandler
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from shadow_model.errors import ShadowError
from tasks.progress import PROGRESS

_PLAIN_EVERY_S = 15.0


class _Listener(logging.Handler, ABC):
    """Turns the records of running stages into calls of `show`."""

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "label"):
            self.show(record)

    @abstractmethod
    def show(self, record: logging.LogRecord) -> None:
        """Show one record."""


class _Bars(_Listener):
    def __init__(self, bars: Progress) -> None:
        super().__init__()
        self._bars = bars
        self._ids: dict[str, TaskID] = {}

    def show(self, record: logging.LogRecord) -> None:
        label, done, total, what = _fields(record)
        if label not in self._ids:
            self._ids[label] = self._bars.add_task(label, total=total, what=what)
        self._bars.update(self._ids[label], completed=done, total=total, what=what)
        if done >= total:
            self._bars.remove_task(self._ids.pop(label))


class _Lines(_Listener):
    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, float] = {}

    def show(self, record: logging.LogRecord) -> None:
        label, done, total, what = _fields(record)
        now = time.monotonic()
        if now >= self._next.setdefault(label, now + _PLAIN_EVERY_S):
            self._next[label] = now + _PLAIN_EVERY_S
            percent = 100 * done / total if total else 0.0
            logging.getLogger("prefect").info("%s: %s, %.0f %%", label, what, percent)


class _BriefFormatter(logging.Formatter):
    """Leaves tracebacks of errors out that a user can act on: they are told once, at the end."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        if record.exc_info and isinstance(record.exc_info[1], ShadowError):
            record = copy.copy(record)
            record.exc_info = record.exc_text = None
        return self._inner.format(record)


@contextmanager
def shown_progress(quiet: bool = False) -> Iterator[None]:
    """Show the progress of stages on the terminal while the block runs, or nothing of it."""
    logger, console = logging.getLogger(PROGRESS), _tidied_console()
    logger.setLevel(logging.INFO)
    logger.propagate = False
    if quiet:
        yield
        return
    with _bars(console) if console.is_terminal else _plain() as listener:
        logger.addHandler(listener)
        try:
            yield
        finally:
            logger.removeHandler(listener)


@contextmanager
def _bars(console: Console) -> Iterator[_Listener]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  {task.fields[what]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        yield _Bars(bars)


@contextmanager
def _plain() -> Iterator[_Listener]:
    yield _Lines()


def _tidied_console() -> Console:
    """Return the console that log lines go to (bars must share it), without needless tracebacks."""
    ensure_logging_setup()
    names = [n for n in logging.root.manager.loggerDict if n.partition(".")[0] == "prefect"]
    consoles = [Console(stderr=True)]
    loggers = [logging.root, *map(logging.getLogger, names)]
    for handler in {handler for logger in loggers for handler in logger.handlers}:
        if isinstance(handler, PrefectConsoleHandler):
            handler.setFormatter(_BriefFormatter(handler.formatter or logging.Formatter()))
            consoles.append(handler.console)
    return consoles[-1]


def _fields(record: logging.LogRecord) -> tuple[str, float, float, str]:
    fields = record.__dict__
    return fields["label"], fields["done"], fields["total"], fields["what"]
