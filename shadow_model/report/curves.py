"""Loss curves: what each arm's loss did over the training tokens, in all and by kind.

Thin lines are means over the training intervals; dots with bars are held-out evaluations with
their standard errors; a dotted upright marks growth of the loops.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from shadow_model.report import words
from shadow_model.report.drawing import ARM_COLOURS, CARD, INK, MARK, MUTED, panel, to_svg
from shadow_model.report.pairing import TOTAL
from shadow_model.report.runs import Evaluation, Interval, KindLoss, Run
from shadow_model.report.words import ARM_NAMES

THROUGHPUT = "throughput"
_PANEL_IN = (5.2, 3.5)
Place = Interval | Evaluation


def loss_curve(
    runs: Sequence[Run], kind: str, entropy_nats: float | None, max_points: int
) -> str | None:
    """Draw the losses of one kind, or of `TOTAL`, for all arms.

    Args:
        entropy_nats: Entropy of the held-out unigrams of that kind, drawn as a level.
        max_points: A longer curve is shown by means of neighbouring intervals.

    Returns:
        An SVG element, or None where no arm has a loss of that kind.
    """
    drawn = [run for run in runs if _held_out(run, kind)[0]]
    if not drawn:
        return None
    with panel(*_PANEL_IN) as axes:
        for run in drawn:
            _draw_run(axes, run, kind, max_points)
        if entropy_nats is not None:
            axes.axhline(entropy_nats, color=MUTED, lw=1, ls=(0, (5, 3)), label="unigram entropy")
        axes.set_title("all kinds" if kind == TOTAL else kind)
        axes.set_xlabel("training tokens")
        axes.set_ylabel("nats a token")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: words.quantity(x)))
        axes.margins(x=0.03, y=0.08)
        axes.legend(loc="upper right")
        return to_svg(axes, f"loss-{kind}", f"Loss over training tokens: {kind}")


def throughput_curve(runs: Sequence[Run], max_points: int) -> str | None:
    """Draw each arm's training tokens a second; None where no arm measured them."""
    drawn = [run for run in runs if any(i.tokens_per_s for i in run.intervals)]
    if not drawn:
        return None
    with panel(*_PANEL_IN) as axes:
        for run in drawn:
            points = [(i.tokens, i.tokens_per_s) for i in run.intervals if i.tokens_per_s]
            tokens, speeds = _thin(points, max_points)[:2]
            axes.plot(tokens, speeds, color=ARM_COLOURS[run.name], label=ARM_NAMES[run.name])
            _mark_growth(axes, run)
        axes.set_title("throughput")
        axes.set_xlabel("training tokens")
        axes.set_ylabel("tokens a second")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda x, _: words.quantity(x)))
        axes.margins(x=0.03)
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower left")
        return to_svg(axes, "throughput", "Training tokens a second over training tokens")


def curve_data(
    runs: Sequence[Run], kind: str, entropy_nats: float | None, max_points: int
) -> dict[str, Any] | None:
    """Return what `loss_curve` or `throughput_curve` draws as lines over tokens, FLOPs and time."""
    lines = [line for run in runs for line in _lines(run, kind, max_points) if line["values"]]
    if not lines:
        return None
    unit = "tokens a second" if kind == THROUGHPUT else "nats a token"
    grown = [growth.model_dump() for run in runs for growth in run.growths]
    return {"unit": unit, "level": entropy_nats, "lines": lines, "growths": grown}


def _lines(run: Run, kind: str, max_points: int) -> Iterator[dict[str, Any]]:
    name = ARM_NAMES.get(run.name, run.tag)
    if kind == THROUGHPUT:
        yield _line(run, name, [(i, i.tokens_per_s) for i in run.intervals], max_points)
        return
    training = [(i, _loss(i.loss, i.kinds, kind)) for i in run.intervals]
    yield _line(run, f"{name}, training", training, max_points)
    held_out = [(e, _loss(e.loss, e.kinds, kind)) for e in run.evaluations]
    line = _line(run, f"{name}, held out", held_out, len(held_out))
    yield {**line, "held_out": True, "errors": _held_out(run, kind)[2]}


def _line(
    run: Run, label: str, found: Sequence[tuple[Place, float | None]], max_points: int
) -> dict[str, Any]:
    nan = float("nan")
    known = [
        (i.tokens, nan if i.flops is None else i.flops, i.elapsed_s, v)
        for i, v in found
        if v is not None
    ]
    columns = _thin(known, max_points)
    axes = dict(zip(("tokens", "flops", "elapsed_s", "values"), columns, strict=True))
    plain = {n: [None if math.isnan(v) else float(f"{v:.6g}") for v in c] for n, c in axes.items()}
    return {"arm": run.name, "label": label, "held_out": False, **plain}


def _draw_run(axes: Axes, run: Run, kind: str, max_points: int) -> None:
    colour = ARM_COLOURS[run.name]
    tokens, losses = _training(run, kind, max_points)
    axes.plot(tokens, losses, color=colour, lw=1, alpha=0.5)
    tokens, losses, errors = _held_out(run, kind)
    axes.errorbar(
        tokens, losses, errors, color=colour, marker="o", ms=4, capsize=2, elinewidth=1,
        label=f"{ARM_NAMES[run.name]}, held out",
    )  # fmt: skip
    _mark_growth(axes, run)


def _mark_growth(axes: Axes, run: Run) -> None:
    for growth in run.growths:
        axes.axvline(growth.tokens, color=MARK, lw=1.2, ls=":")
        axes.annotate(
            f"loops {growth.from_loops} → {growth.loops}",
            (growth.tokens, 0.5), xycoords=("data", "axes fraction"), xytext=(-3, 0),
            textcoords="offset points", ha="right", va="center", rotation=90, color=INK,
            fontsize=9, bbox={"fc": CARD, "ec": "none", "alpha": 0.8, "pad": 1},
        )  # fmt: skip


def _training(run: Run, kind: str, max_points: int) -> tuple[list[float], list[float]]:
    points = [(i.tokens, _loss(i.loss, i.kinds, kind)) for i in run.intervals]
    tokens, losses, *_ = _thin([(t, v) for t, v in points if v is not None], max_points)
    return tokens, losses


def _thin(points: Sequence[tuple[float, ...]], max_points: int) -> list[list[float]]:
    """Return the columns of at most `max_points` points: means of neighbours, in order."""
    if not points:
        return [[], [], [], []]
    known = np.array(points)
    means = [part.mean(0) for part in np.array_split(known, min(max_points, len(known)))]
    columns: list[list[float]] = np.stack(means, 1).tolist()
    return columns


def _held_out(run: Run, kind: str) -> tuple[list[float], list[float], list[float]]:
    tokens, losses, errors = [], [], []
    for evaluation in run.evaluations:
        value = _loss(evaluation.loss, evaluation.kinds, kind)
        if value is not None:
            own = evaluation.kinds.get(kind, KindLoss())
            error = evaluation.standard_error if kind == TOTAL else own.standard_error
            tokens.append(evaluation.tokens)
            losses.append(value)
            errors.append(error or 0.0)
    return tokens, losses, errors


def _loss(total: float, kinds: dict[str, KindLoss], kind: str) -> float | None:
    return total if kind == TOTAL else kinds.get(kind, KindLoss()).loss
