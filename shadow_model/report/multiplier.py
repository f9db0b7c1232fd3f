"""The compute multiplier: how much more compute the control needs for the same held-out loss.

    multiplier(loss) = C_control(loss) / C_proof(loss)

C(loss) is where a curve first reaches the loss, its loss interpolated against log compute between
two evaluations. Nothing is extrapolated: a loss that one arm never reached, or had reached at its
first evaluation, has no multiplier.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from shadow_model.report.runs import Run

_NUM_PLACES = 5


class Place(NamedTuple):
    """Both arms at an equal held-out loss, in nats a token."""

    loss: float
    proof_flops: float
    control_flops: float

    @property
    def multiplier(self) -> float:
        """Compute of the control over that of the proof."""
        return self.control_flops / self.proof_flops


def multipliers(proof: Run, control: Run) -> list[Place]:
    """Compare two arms where their losses overlap: at the lowest loss of both, and above it.

    Returns:
        Places from the lowest loss up, at most 5; none where the curves do not overlap.
    """
    curves = [_curve(run) for run in (proof, control)]
    if not all(curves):
        return []
    lowest = max(min(loss for _, loss in curve) for curve in curves)
    highest = min(curve[0][1] for curve in curves)
    if lowest > highest:
        return []
    losses = [lowest + (highest - lowest) * i / _NUM_PLACES for i in range(_NUM_PLACES)]
    reached = [
        (loss, [flops_at(curve, loss) for curve in curves]) for loss in dict.fromkeys(losses)
    ]
    return [Place(loss, a, b) for loss, (a, b) in reached if a is not None and b is not None]


def flops_at(curve: Sequence[tuple[float, float]], loss: float) -> float | None:
    """Return the compute at which a curve of (FLOPs, loss) first reaches a loss, or None."""
    if not curve or curve[0][1] < loss:
        return None
    for (flops, above), (more, below) in itertools.pairwise([curve[0], *curve]):
        if below <= loss:
            share = 1.0 if above == below else (above - loss) / (above - below)
            return math.exp(math.log(flops) + share * math.log(more / flops))
    return None


def _curve(run: Run) -> list[tuple[float, float]]:
    """Return (FLOPs, loss) of every evaluation after the first update."""
    return [(e.flops, e.loss) for e in run.evaluations if e.flops]
