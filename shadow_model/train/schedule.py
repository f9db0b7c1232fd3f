"""What holds at a step: context length, loops, sparsity, micro-batches, learning rate.

Pure functions of the config and the number of updates done; nothing is remembered, so a resumed run
needs no state here. A phase is decided by the share of the steps done when the step begins. The
learning rate is that of the step's end: the first update of a warm-up of n steps has 1/n of the
peak (not 0, which would waste a batch), and the last update has exactly the floor. Growth makes
the gradients those of another function: the rate warms up again over a few updates (arXiv
2609.19107).
"""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from shadow_model.train.config import ArmConfig, TrainConfig

_DECAY_POWER = 1.5


class Phase(NamedTuple):
    """What stays the same for many steps."""

    ctx_tokens: int
    loops: int
    sparse: bool
    micro_batches: int


def phase_at(arm: ArmConfig, step: int) -> Phase:
    """Return the phase of an update.

    Args:
        arm: A flat model has one loop in every phase, and no growth.
        step: Updates done before it, from 0.
    """
    train = arm.train
    fraction = step / train.num_steps
    ctx = [s.ctx_tokens for s in train.lengths if fraction >= s.from_frac][-1]
    grown = fraction >= train.growth_at_frac and not arm.model.flat
    loops = 1 if arm.model.flat else train.loops[grown]
    large = loops > train.loops[0] or ctx > train.lengths[0].ctx_tokens
    micro_batches = train.micro_batches_large if large else train.micro_batches
    return Phase(ctx, loops, ctx >= train.sparse_from_ctx_tokens, micro_batches)


def final_loops(arm: ArmConfig) -> int:
    """Return the loops that the arm ends with."""
    return 1 if arm.model.flat else arm.train.loops[1]


def growth_step(config: TrainConfig) -> int | None:
    """Return the updates before a looped model's loops grow, or None where they never do."""
    total, share = config.num_steps, config.growth_at_frac
    near = max(0, int(share * total) - 1)
    first = next(s for s in itertools.count(near) if s / total >= share)  # as `phase_at` compares
    return first if 0 < first < total and config.loops[0] < config.loops[1] else None


def lr_at(config: TrainConfig, step: int, flat: bool = False) -> float:
    """Return the learning rate of an update.

    Args:
        step: Updates done before it, from 0 to num_steps - 1.
        flat: Whether the model is flat: it never grows, so it is never warmed up again.
    """
    done, total = step + 1 - config.lr_lag_steps, config.num_steps
    warmup = max(1, int(config.warmup_frac * total))
    if done < warmup:
        return config.lr * done / warmup
    lr = config.lr * _DECAYS[config.decay](config, done, warmup)
    grown = None if flat else growth_step(config)
    if grown is None or not 0 <= step - grown < config.rewarm_steps:
        return lr
    return lr * (step - grown + 1) / config.rewarm_steps


def _cosine(config: TrainConfig, done: int, warmup: int) -> float:
    fraction = (done - warmup) / max(1, config.num_steps - warmup)
    floor = config.floor_frac
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * fraction))


def _warm_hold_decay(config: TrainConfig, done: int, warmup: int) -> float:
    total = config.num_steps
    hold_end = max(warmup + 1, int(config.hold_frac * total))
    fraction = min(1.0, max(0, done - hold_end) / max(1, total - hold_end))
    left = math.pow(1 - fraction, _DECAY_POWER)
    return config.floor_frac + (1 - config.floor_frac) * left


_DECAYS: Mapping[str, Callable[[TrainConfig, int, int], float]] = {
    "cosine": _cosine,
    "warm_hold_decay": _warm_hold_decay,
}
