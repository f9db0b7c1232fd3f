"""What happened since the last record, summed on the device and read once.

Reading waits for the device, so it is done once a log interval. The first update whose loss or
gradients are not finite is remembered there too; the run stops when it is read, and before anything
is saved.

Legend: P trained parameters.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shadow_model.errors import NumericsError
from shadow_model.table.layout import KINDS


class StepStats(NamedTuple):
    """Figures of one update, still on the device.

    Attributes:
        sums: (kinds,) cross-entropy in nats, summed over the kept targets of each kind.
        counts: (kinds,) kept targets of each kind.
        index_kl: () mean over micro-batches; over block calls mean or sum, as in the loss.
        dropped: () targets outside their row set.
        norms: (P,) L2 norm of each gradient before clipping.
    """

    sums: Tensor
    counts: Tensor
    index_kl: Tensor
    dropped: Tensor
    norms: Tensor


class IntervalMeans(NamedTuple):
    """Means over an interval; a kind without targets has None."""

    loss: float
    index_kl: float
    kinds: dict[str, dict[str, Any]]
    dropped: int
    gradient_norm: float
    steps: int
    tokens: int


class Interval:
    """Sums over the updates since the last record.

    Args:
        names: Of the P trained parameters, to name offending gradients.
        device: Where the sums are kept.
    """

    def __init__(self, names: list[str], device: torch.device) -> None:
        self._names, self._device = names, device
        self._reset()

    def _reset(self) -> None:
        self._sums = torch.zeros(2 * len(KINDS) + 3, dtype=torch.float64, device=self._device)
        self._bad_step = torch.full((), -1, device=self._device)
        self._bad = torch.zeros(1 + len(self._names), dtype=torch.bool, device=self._device)
        self._starts: dict[int, np.ndarray] = {}
        self._steps, self._tokens = 0, 0

    def add(self, stats: StepStats, step: int, starts: np.ndarray, tokens: int) -> None:
        """Add an update.

        Args:
            step: Updates done before it.
            starts: (B,) where its windows begin in the bin.
            tokens: Targets in its batch.
        """
        norm = torch.linalg.vector_norm(stats.norms)
        scalars = torch.stack([stats.index_kl, stats.dropped.to(norm.dtype), norm])
        self._sums += torch.cat([stats.sums.double(), stats.counts.double(), scalars.double()])
        loss_bad = ~stats.sums.sum().isfinite() | ~stats.index_kl.isfinite()
        bad = torch.cat([loss_bad.reshape(1), ~stats.norms.isfinite()])
        first = bad.any() & (self._bad_step < 0)
        self._bad_step = torch.where(first, step, self._bad_step)
        self._bad = torch.where(first, bad, self._bad)
        self._starts[step] = starts
        self._steps += 1
        self._tokens += tokens

    def check(self) -> None:
        """Wait for the device.

        Raises:
            NumericsError: The loss or a gradient of an update was not finite.
        """
        if (step := int(self._bad_step)) < 0:
            return
        bad = self._bad.tolist()
        names = [n for n, b in zip(["loss", *self._names], bad, strict=True) if b]
        raise NumericsError(
            f"step {step}",
            "have a finite loss and finite gradients",
            f"non-finite {', '.join(names)}; its windows start at {self._starts[step].tolist()}",
            "The last checkpoint is from before it: resume with a lower lr, or look at that data.",
        )

    def take(self) -> IntervalMeans:
        """Return the means since the last call and begin anew; raises as `check` does."""
        self.check()
        means = _means(self._sums.tolist(), self._steps, self._tokens)
        self._reset()
        return means

    def state_dict(self) -> dict[str, Any]:
        """Return the sums as plain numbers, exact; raises as `check` does."""
        self.check()
        return {"sums": self._sums.tolist(), "steps": self._steps, "tokens": self._tokens}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from saved sums."""
        self._reset()
        self._sums += torch.tensor(state["sums"], dtype=torch.float64, device=self._device)
        self._steps, self._tokens = state["steps"], state["tokens"]


def _means(values: list[float], steps: int, tokens: int) -> IntervalMeans:
    sums, counts = values[: len(KINDS)], values[len(KINDS) : 2 * len(KINDS)]
    index_kl, dropped, norm = values[2 * len(KINDS) :]
    kinds: dict[str, dict[str, Any]] = {
        kind: {"loss": total / count if count else None, "count": int(count)}
        for kind, total, count in zip(KINDS, sums, counts, strict=True)
    }
    return IntervalMeans(
        loss=math.fsum(sums) / max(1.0, math.fsum(counts)),
        index_kl=index_kl / max(1, steps),
        kinds=kinds,
        dropped=int(dropped),
        gradient_norm=norm / max(1, steps),
        steps=steps,
        tokens=tokens,
    )
