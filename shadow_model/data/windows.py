"""Bins -> batches: training windows that resume exactly, and fixed held-out windows.

A window is ctx ids and, as targets, the ids one further. Batches are global: with several processes
each draws the same one and reads its own rows of it.

- epoch: windows lie side by side from a random offset below ctx, and each comes once, in a random
  order; offset and order follow from (seed, epoch, ctx). When ctx changes, a new epoch begins.
- random: starts are uniform in [0, N - ctx - 1), drawn from one generator batch after batch.

Shapes: B windows of a process's batch, T = ctx tokens, N tokens of the bin.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from shadow_model.data.bins import Bin
from shadow_model.errors import CheckpointError, ConfigError, DataError

Sampling = Literal["epoch", "random"]
STATE_VERSION = 1


class Batch(NamedTuple):
    """Windows of a bin.

    Attributes:
        ids: (B, T) int64.
        targets: (B, T) int64, the id after each of `ids`.
        starts: (B,) int64, where in the bin each window begins.
    """

    ids: np.ndarray
    targets: np.ndarray
    starts: np.ndarray


class _Order(NamedTuple):
    """The windows of one epoch: (n,) int64 starts, in their order."""

    epoch: int
    ctx: int
    starts: np.ndarray


class Windows:
    """Training windows of a bin, batch after batch.

    Args:
        stream: The bin.
        seed: Decides the order.
        sampling: See the module.
        rank: This process among `world`.
        world: Processes that share each batch.
    """

    def __init__(
        self, stream: Bin, seed: int, sampling: Sampling = "epoch", rank: int = 0, world: int = 1
    ) -> None:
        self.bin, self.seed, self.sampling = stream, seed, sampling
        self._rank, self._world = rank, world
        self._rng = np.random.default_rng(seed)
        self._epoch, self._used, self._ctx = 0, 0, 0
        self._order: _Order | None = None

    def next(self, ctx: int, batch: int) -> Batch:
        """Return the next batch; both sizes may differ from the last call's.

        Args:
            ctx: Tokens of a window (T).
            batch: Windows of the whole batch, over all processes.

        Returns:
            This process's part of it: B = batch / world windows.

        Raises:
            DataError: The bin is shorter than one window.
            ConfigError: The processes cannot share the batch evenly.
        """
        if batch % self._world:
            must = f"be a multiple of the {self._world} processes"
            raise ConfigError("batch", must, batch, "Change the batch or the number of devices.")
        self.bin.require_window(ctx)
        draw = self._draw_epoch if self.sampling == "epoch" else self._draw_random
        share = batch // self._world
        return read_windows(self.bin, draw(ctx, batch)[self._rank * share :][:share], ctx)

    def state_dict(self) -> dict[str, Any]:
        """Return the position as JSON can hold it; equal in all processes."""
        state = {
            "version": STATE_VERSION,
            "sampling": self.sampling,
            "seed": self.seed,
            "tokens": self.bin.num_tokens,
        }
        if self.sampling == "random":
            return {**state, "rng": self._rng.bit_generator.state}
        return {**state, "epoch": self._epoch, "used": self._used, "ctx": self._ctx}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a position, so that the next batch is the one that followed it.

        Raises:
            CheckpointError: The state is of another bin, seed, sampling or format, or is not whole.
        """
        own = self.state_dict()
        for name in ("version", "sampling", "seed", "tokens"):
            if state.get(name) != own[name]:
                fix = "Resume with the bins and config of the run, or start a new one."
                raise CheckpointError(
                    f"windows.{name}", f"be {own[name]!r}", repr(state.get(name)), fix
                )
        try:
            if self.sampling == "random":
                self._rng.bit_generator.state = dict(state["rng"])
            else:
                self._epoch, self._used, self._ctx = (
                    int(state[name]) for name in ("epoch", "used", "ctx")
                )
        except (KeyError, TypeError, ValueError) as error:
            must, found = "be a position that was saved", f"{type(error).__name__}: {error}"
            raise CheckpointError("windows", must, found, "Resume from an older one.") from error

    def _draw_random(self, ctx: int, batch: int) -> np.ndarray:
        limit = self.bin.num_tokens - ctx - 1
        if limit < 1:
            must, found = f"hold at least {ctx + 2} tokens", f"{self.bin.num_tokens}"
            raise DataError(self.bin.path, must, found, "Pack more data, or lower ctx.")
        return self._rng.integers(0, limit, size=batch)

    def _draw_epoch(self, ctx: int, batch: int) -> np.ndarray:
        if ctx != self._ctx:
            self._epoch += self._used > 0
            self._ctx, self._used = ctx, 0
        parts: list[np.ndarray] = []
        while (missing := batch - sum(map(len, parts))) > 0:
            starts = self._epoch_starts()
            parts.append(starts[self._used : self._used + missing])
            self._used += len(parts[-1])
            if self._used == len(starts):
                self._epoch, self._used = self._epoch + 1, 0
        return np.concatenate(parts)

    def _epoch_starts(self) -> np.ndarray:
        """Return the current epoch's windows; kept until it ends (8 bytes a window)."""
        order = self._order
        if order is None or (order.epoch, order.ctx) != (self._epoch, self._ctx):
            starts = epoch_starts(self.bin.num_tokens, self._ctx, self.seed, self._epoch)
            order = self._order = _Order(self._epoch, self._ctx, starts)
        return order.starts


def epoch_starts(num_tokens: int, ctx: int, seed: int, epoch: int) -> np.ndarray:
    """Return where the windows of an epoch begin, in their order.

    They lie side by side; fewer than ctx tokens are left out at either end, others each epoch.

    Args:
        num_tokens: Tokens of the bin (N), more than ctx.

    Returns:
        (n,) int64; n is (N - 1) // ctx, or one less where the offset takes one.
    """
    rng = np.random.default_rng([seed, epoch, ctx])
    offset = int(rng.integers(0, min(ctx, num_tokens - ctx)))
    return offset + ctx * rng.permutation((num_tokens - 1 - offset) // ctx)


def fixed_starts(num_tokens: int, ctx: int, num: int | None = None) -> np.ndarray:
    """Return where held-out windows begin: evenly spaced over the bin, none meeting another.

    Args:
        num: Windows wanted; fewer where the bin holds fewer. None: all that fit.

    Returns:
        (n,) int64, rising.
    """
    fit = (num_tokens - 1) // ctx
    count = fit if num is None else min(num, fit)
    return np.arange(count) * (num_tokens - 1 - ctx) // max(count - 1, 1)


def fixed_windows(stream: Bin, ctx: int, num: int | None = None, batch: int = 8) -> Iterator[Batch]:
    """Yield held-out windows in their order, the same for every run with this bin, ctx and num.

    Args:
        num: Windows in all, capped by the bin's tokens; None: all that fit.
        batch: Most windows at once.

    Raises:
        DataError: The bin is shorter than one window.
    """
    stream.require_window(ctx)
    starts = fixed_starts(stream.num_tokens, ctx, num)
    for first in range(0, len(starts), batch):
        yield read_windows(stream, starts[first : first + batch], ctx)


def read_windows(stream: Bin, starts: np.ndarray, ctx: int) -> Batch:
    """Read windows of ctx tokens, and the ids after them, that begin at (B,) int64 `starts`."""
    rows = np.stack([stream.ids[start : start + ctx + 1] for start in starts]).astype(np.int64)
    return Batch(rows[:, :-1], rows[:, 1:], np.asarray(starts, np.int64))
