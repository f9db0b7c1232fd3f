"""The metrics of one arm, typed: what its JSON lines say, and nothing more.

Losses are nats a token. A curve holds one evaluation a step, the first: with the loops that train
there. Those around growth are kept apart: they read more windows than their neighbours,
and tell what growth did.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shadow_model.errors import DataError
from shadow_model.train.telemetry import read_metrics

METRICS = "metrics.jsonl"
_FIX = "Train the arm again, or restore its metrics file."


class _Record(BaseModel):
    """A record whose other fields are of no interest here."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    step: int = Field(ge=0)


class KindLoss(BaseModel):
    """Mean loss of one kind; None where it had no token."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    loss: float | None = None
    standard_error: float | None = None
    count: float = 0


class Interval(_Record):
    """Means over the updates since the last such record."""

    tokens: float
    elapsed_s: float
    loss: float
    kinds: dict[str, KindLoss] = Field(default_factory=dict)
    loops: int = 1
    ctx_tokens: int = 0
    index_kl: float | None = None
    tokens_per_s: float | None = None
    flops: float | None = None


class Evaluation(_Record):
    """Held-out losses at one step."""

    tokens: float
    elapsed_s: float
    loss: float
    standard_error: float | None = None
    kinds: dict[str, KindLoss] = Field(default_factory=dict)
    why: str = ""
    windows: int | None = None
    loops: int = 1
    ctx_tokens: int = 0
    flops: float | None = None
    transitions: dict[str, KindLoss] = Field(default_factory=dict)
    text_bits_per_byte: float | None = None
    text_bits_per_byte_error: float | None = None

    @property
    def at_growth(self) -> bool:
        """Whether it was made only because the loops grew there."""
        return self.why in {"before growth", "growth"}


class Growth(_Record):
    """The loops grew after this step."""

    tokens: float
    from_loops: int
    loops: int
    flops: float | None = None
    elapsed_s: float | None = None


@dataclass(frozen=True)
class Run:
    """One trained arm.

    Attributes:
        name: Stage that trained it: "proof", "flat", or that of a further arm.
        start: What was trained: parameters, steps, device.
        evaluations: One a step, without those around growth.
        around_growth: Those, in order: before and after.
        final: The end: cost, and whether the learning rate was annealed; empty if not ended.
    """

    name: str
    start: dict[str, Any]
    intervals: tuple[Interval, ...]
    evaluations: tuple[Evaluation, ...]
    growths: tuple[Growth, ...]
    around_growth: tuple[Evaluation, ...]
    final: dict[str, Any]

    @property
    def annealed(self) -> bool:
        """Whether the run came to the end of its own schedule."""
        return bool(self.final.get("annealed", False))

    @property
    def tag(self) -> str:
        """Name of its arm."""
        return str(self.start.get("tag", self.name))

    @property
    def seed(self) -> int:
        """Of its first weights and windows."""
        return int(self.start.get("seed", 0))

    @property
    def tokens(self) -> float:
        """Training tokens read by the last held-out evaluation."""
        return self.evaluations[-1].tokens


def read_run(name: str, path: Path) -> Run:
    """Read an arm's metrics.jsonl.

    Raises:
        DataError: A line is no record, a record lacks a field, or nothing was evaluated.
    """
    records = read_metrics(path)
    of: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for number, record in enumerate(records, 1):
        of.setdefault(str(record["event"]), []).append((number, record))
    evaluations = tuple(_parse(Evaluation, path, of.get("evaluate", [])))
    growths = tuple(_parse(Growth, path, of.get("growth", [])))
    if all(evaluation.at_growth for evaluation in evaluations):
        raise DataError(path, "hold at least one held-out evaluation", "none", _FIX)
    return Run(
        name=name,
        start=next((record for _, record in of.get("start", [])), {}),
        intervals=tuple(_parse(Interval, path, of.get("log", []))),
        evaluations=tuple(_once_a_step(e for e in evaluations if not e.at_growth)),
        growths=growths,
        around_growth=tuple(e for e in evaluations if e.at_growth),
        final=next((record for _, record in reversed(of.get("final", []))), {}),
    )


RecordT = TypeVar("RecordT", bound=_Record)


def _parse(
    model: type[RecordT], path: Path, records: list[tuple[int, dict[str, Any]]]
) -> Iterator[RecordT]:
    for number, record in records:
        try:
            yield model.model_validate(record)
        except ValidationError as error:
            found = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            must = f"be a record of event {record['event']}"
            raise DataError(f"{path}:{number}", must, found, _FIX) from error


def _once_a_step(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    """Keep the first evaluation of each step, in order of steps."""
    kept: dict[int, Evaluation] = {}
    for evaluation in evaluations:
        kept.setdefault(evaluation.step, evaluation)
    return [kept[step] for step in sorted(kept)]
