"""Does the looped core beat the flat control, and what this run cannot say about it.

Losses are compared at an equal amount of something: training tokens, training FLOPs or time. The
place is the furthest that both arms have reached. Between two evaluations a loss is interpolated
linearly; beyond the last it is not guessed. A difference counts when it is above two standard
errors over held-out windows: paired ones where both arms stand at their ends and were judged on the
same windows; else the two means are taken as independent, which is on the safe side.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from shadow_model.nn.transitions import TRANSITIONS
from shadow_model.report import words
from shadow_model.report.pairing import TOTAL
from shadow_model.report.runs import Evaluation, KindLoss, Run
from shadow_model.table.layout import KINDS

Axis = Literal["tokens", "flops", "elapsed_s"]
Outcome = Literal["better", "worse", "undecided"]
AXES: dict[Axis, str] = {
    "tokens": "equal tokens",
    "flops": "equal training FLOPs",
    "elapsed_s": "equal training time",
}


_SAME_PLACE = 5e-3
"""Relative. An arm trained for another's FLOPs stops at a whole update, which is as near."""


@dataclass(frozen=True)
class Reading:
    """An arm's held-out loss at some amount: `TOTAL` or a kind -> loss.

    Attributes:
        annealed: The arm stands at the end of its own schedule there.
        interpolated: Read between two evaluations.
        last: Read at the arm's last evaluation.
        windows: Held-out windows read; None where unknown or not one number.
    """

    losses: dict[str, KindLoss]
    annealed: bool
    interpolated: bool
    last: bool
    windows: int | None


@dataclass(frozen=True)
class Difference:
    """Flat minus proof, in nats a token: positive where the looped core is better."""

    value: float
    standard_error: float

    @property
    def outcome(self) -> Outcome:
        """Better or worse where it exceeds two standard errors."""
        if abs(self.value) <= 2 * self.standard_error:
            return "undecided"
        return "better" if self.value > 0 else "worse"


@dataclass(frozen=True)
class Comparison:
    """Both arms at an equal amount of `axis`."""

    axis: Axis
    at: float
    proof: Reading
    flat: Reading
    differences: dict[str, Difference]
    paired: bool

    @property
    def mid_schedule(self) -> list[str]:
        """Names of the arms that were not annealed at that place."""
        arms = {"proof": self.proof, "flat": self.flat}
        return [name for name, reading in arms.items() if not reading.annealed]


@dataclass(frozen=True)
class Verdict:
    """The answer in plain words.

    Attributes:
        outcome: "missing" where there is nothing to compare.
        axis: What the arms have equal where it is given.
        caveats: What the run cannot show, a sentence each.
    """

    outcome: Outcome | Literal["missing"]
    headline: str
    by_kind: str
    caveats: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    axis: Axis = "tokens"


def judge(
    proof: Run | None,
    flat: Run | None,
    small_run_tokens: int,
    paired_errors: Mapping[str, float] | None = None,
    *,
    axis: Axis = "tokens",
    over_seeds: Mapping[str, Any] | None = None,
) -> Verdict:
    """Compare the arms and say what the comparison is worth.

    Args:
        proof: The looped arm, or None if it was not trained.
        flat: The control, or None if it was not trained.
        small_run_tokens: Fewer training tokens than this are called too few to carry over.
        paired_errors: Kind or `TOTAL` -> standard error of the arms' difference at their ends.
        axis: What the arms have equal where the verdict is given: FLOPs for a control that was
            trained for as many.
        over_seeds: Mean and standard error of flat minus proof over seeds, where there are several.
    """
    if proof is None or flat is None:
        return _missing(proof, flat)
    compared = [compare(proof, flat, axis, paired_errors or {}) for axis in AXES]
    comparisons = tuple(c for c in compared if c is not None)
    chosen = next((c for c in comparisons if c.axis == axis), None)
    if chosen is None:
        text = (
            f"The two arms share no stretch of training at {AXES[axis]}: nothing can be compared."
        )
        return Verdict("missing", text, "", (), comparisons, axis)
    caveats = _caveats(proof, flat, comparisons, small_run_tokens)
    return Verdict(
        outcome=chosen.differences[TOTAL].outcome,
        headline=_headline(chosen),
        by_kind=_by_kind(chosen),
        caveats=(*caveats, *_annealing_caveat(chosen), _seeds_caveat(over_seeds)),
        comparisons=comparisons,
        axis=axis,
    )


def compare(
    proof: Run, flat: Run, axis: Axis, paired_errors: Mapping[str, float]
) -> Comparison | None:
    """Read both arms at the furthest amount that both reached; None where they do not overlap."""
    ends = [getattr(run.evaluations[-1], axis) for run in (proof, flat)]
    if None in ends:
        return None
    at = min(ends)
    looped, control = read_at(proof, axis, at), read_at(flat, axis, at)
    if looped is None or control is None:
        return None
    names = [n for n in (TOTAL, *KINDS, *TRANSITIONS) if _has(looped, n) and _has(control, n)]
    paired = looped.last and control.last and TOTAL in paired_errors
    differences = {}
    for name in names:
        error = paired_errors.get(name) if paired else None
        differences[name] = _difference(looped.losses[name], control.losses[name], error)
    return Comparison(axis, at, looped, control, differences, paired)


def read_at(run: Run, axis: Axis, at: float) -> Reading | None:
    """Read an arm's held-out losses where `axis` is `at`; None outside what was evaluated."""
    places = [(getattr(e, axis), e) for e in run.evaluations]
    if any(place is None for place, _ in places):
        return None
    last_place, last = places[-1]
    if math.isclose(at, last_place, rel_tol=_SAME_PLACE):
        return Reading(_losses(last), run.annealed, False, last=True, windows=last.windows)
    for (left_at, left), (right_at, right) in itertools.pairwise(places):
        if left_at <= at <= right_at and right_at > left_at:
            share = (at - left_at) / (right_at - left_at)
            between = 0 < share < 1
            windows = left.windows if left.windows == right.windows else None
            return Reading(_blend(left, right, share), False, between, last=False, windows=windows)
    return None


def _losses(evaluation: Evaluation) -> dict[str, KindLoss]:
    total = KindLoss(loss=evaluation.loss, standard_error=evaluation.standard_error)
    return {TOTAL: total, **evaluation.kinds, **evaluation.transitions}


def _blend(left: Evaluation, right: Evaluation, share: float) -> dict[str, KindLoss]:
    first, second = _losses(left), _losses(right)
    blended = {}
    for name in first.keys() & second.keys():
        a, b = first[name], second[name]
        if a.loss is not None and b.loss is not None:
            error = max(a.standard_error or 0.0, b.standard_error or 0.0)
            value = a.loss + share * (b.loss - a.loss)
            blended[name] = KindLoss(loss=value, standard_error=error, count=b.count)
    return blended


def _has(reading: Reading, name: str) -> bool:
    return name in reading.losses and reading.losses[name].loss is not None


def _difference(proof: KindLoss, flat: KindLoss, paired_error: float | None) -> Difference:
    assert proof.loss is not None
    assert flat.loss is not None
    independent = math.hypot(proof.standard_error or 0.0, flat.standard_error or 0.0)
    error = independent if paired_error is None else paired_error
    return Difference(flat.loss - proof.loss, error)


def _missing(proof: Run | None, flat: Run | None) -> Verdict:
    trained = [run for run in (proof, flat) if run]
    if not trained:
        return Verdict("missing", "No arm has been trained: nothing to compare.", "", (), ())
    name, other = ("looped core", "flat control") if proof else ("flat control", "looped core")
    last = trained[0].evaluations[-1]
    text = (
        f"Only the {name} has been trained (held-out loss {last.loss:.3f} nats a token after "
        f"{words.quantity(last.tokens)} tokens); without the {other} there is no comparison."
    )
    return Verdict("missing", text, "", (), ())


_OPENINGS: dict[Outcome, str] = {
    "better": "The looped core beats the flat control",
    "worse": "The flat control beats the looped core",
    "undecided": "Neither arm is ahead",
}


def _headline(comparison: Comparison) -> str:
    total = comparison.differences[TOTAL]
    ends = {
        "better": f"lower by {total.value:.3f} ± {total.standard_error:.3f}",
        "worse": f"higher by {-total.value:.3f} ± {total.standard_error:.3f}",
        "undecided": f"the difference of {abs(total.value):.3f} ± {total.standard_error:.3f} "
        "is within two standard errors",
    }
    looped, control = comparison.proof.losses[TOTAL].loss, comparison.flat.losses[TOTAL].loss
    return (
        f"{_OPENINGS[total.outcome]}: after {_amount(comparison)} each, "
        f"the looped core's held-out loss is {looped:.3f} nats a token against {control:.3f}, "
        f"{ends[total.outcome]}."
    )


def _amount(comparison: Comparison) -> str:
    if comparison.axis == "tokens":
        return f"{words.quantity(comparison.at)} training tokens"
    if comparison.axis == "flops":
        return f"{words.quantity(comparison.at, 'FLOP')} of training"
    return f"{words.duration(comparison.at)} of training"


def _by_kind(comparison: Comparison) -> str:
    spoken: dict[Outcome, str] = {"better": "better", "worse": "worse", "undecided": "undecided"}
    parts = []
    for kind in KINDS:
        if kind in comparison.differences:
            d = comparison.differences[kind]
            parts.append(
                f"{kind} {spoken[d.outcome]} ({words.change(-d.value)} ± {d.standard_error:.3f})"
            )
    return f"The looped core by kind: {', '.join(parts)}." if parts else ""


def _caveats(
    proof: Run, flat: Run, comparisons: tuple[Comparison, ...], small_run_tokens: int
) -> list[str]:
    tests: tuple[Callable[[], str | None], ...] = (
        lambda: _size_caveat(proof, flat, small_run_tokens),
        lambda: _cost_caveat(proof, flat, comparisons),
        lambda: _evaluation_caveat(proof, flat),
    )
    return [text for text in (test() for test in tests) if text]


def _seeds_caveat(over_seeds: Mapping[str, Any] | None) -> str:
    if over_seeds is None:
        return (
            "One seed an arm: the spread over seeds is not measured, and the standard errors cover "
            "only the choice of held-out windows."
        )
    mean, error = over_seeds["mean"], over_seeds["standard_error"]
    return (
        f"The verdict above is the first seed's. Over {over_seeds['seeds']} seeds of both arms, at "
        f"their ends, flat minus looped is {words.change(mean)} ± {error:.3f} (standard error over "
        f"seeds), from {words.change(over_seeds['low'])} to {words.change(over_seeds['high'])}."
    )


def _size_caveat(proof: Run, flat: Run, small_run_tokens: int) -> str | None:
    fewest = min(proof.tokens, flat.tokens)
    if fewest >= small_run_tokens:
        return None
    return (
        f"This is a small run ({words.quantity(fewest)} tokens an arm): it shows that the whole "
        "chain works, and says little about which arm wins at full size."
    )


def _annealing_caveat(chosen: Comparison) -> Iterator[str]:
    names = {"proof": "the looped core", "flat": "the flat control"}
    arms = [names[arm] for arm in chosen.mid_schedule]
    if arms:
        verb = "was" if len(arms) == 1 else "were"
        yield (
            f"At this point {' and '.join(arms)} {verb} in the middle of the schedule, with the "
            "learning rate not yet let down: a loss there is higher than that of a finished run, "
            "so this comparison is not annealed."
        )


def _cost_caveat(proof: Run, flat: Run, comparisons: tuple[Comparison, ...]) -> str | None:
    ends = (proof.evaluations[-1], flat.evaluations[-1])
    if not ends[0].flops or not ends[1].flops:
        return None
    ratio = (ends[0].flops / ends[0].tokens) / (ends[1].flops / ends[1].tokens)
    text = f"A token costs the looped core {ratio:.2f} times the FLOPs of the flat control"
    equal = next((c for c in comparisons if c.axis == "flops"), None)
    if equal is None:
        return f"{text}; at equal FLOPs the arms were not compared."
    total = equal.differences[TOTAL]
    spoken = {
        "better": f"ahead by {total.value:.3f}",
        "worse": f"behind by {-total.value:.3f}",
        "undecided": f"level with it, {words.change(-total.value)}",
    }
    early = " (not annealed there)" if equal.mid_schedule else ""
    error = f"{total.standard_error:.3f}"
    return f"{text}; at equal FLOPs it is {spoken[total.outcome]} ± {error}{early}."


def _evaluation_caveat(proof: Run, flat: Run) -> str | None:
    lengths = {run.evaluations[-1].ctx_tokens for run in (proof, flat)}
    if len(lengths) == 1:
        return None
    return f"The arms were judged at different context lengths ({sorted(lengths)}): not comparable."
