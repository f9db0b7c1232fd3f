"""Bins -> batches: training windows that resume exactly, and fixed held-out windows.

A window is ctx ids and, as targets, the ids one further. Batches are global: with several processes
each draws the same one and reads its own rows of it.

- epoch: the bin is a row of stretches, each as long as the longest window, from a random offset
  below that; they come in a random order, a group at a time, and the windows that a group's
  stretches are cut into are mixed. All of it follows from (seed, epoch). When ctx changes, the next
  group begins: no token is read twice in an epoch, and less than a group is left out.
- random: starts are uniform in [0, N - ctx - 1), drawn from one generator batch after batch.

Shapes: B windows of a process's batch, T = ctx tokens, N tokens of the bin.
"""

import operator
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from shadow_model.data.bins import Bin
from shadow_model.errors import CheckpointError, ConfigError, DataError

Sampling = Literal["epoch", "random"]
STATE_VERSION = 2
_PLACE = ("epoch", "group", "used", "ctx")
_GROUP_STRETCHES = 64
_MIN_GROUPS = 16
"""A group is at most this share of an epoch, so that a change of ctx leaves little out."""


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


class Epoch(NamedTuple):
    """How the bin is read in one epoch.

    Attributes:
        seed: Of the run.
        number: Of the epoch, from 0.
        stretch: Tokens of a stretch.
        groups: (n,) int64 arrays: where the stretches of each group begin.
    """

    seed: int
    number: int
    stretch: int
    groups: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, num_tokens: int, stretch: int, seed: int, number: int) -> Self:
        """Lay out an epoch.

        Stretches lie side by side; fewer than `stretch` tokens are left out at either end, others
        each epoch.

        Args:
            num_tokens: Tokens of the bin (N), more than `stretch`.
        """
        rng = np.random.default_rng([seed, number, stretch])
        offset = int(rng.integers(0, min(stretch, num_tokens - stretch)))
        starts = offset + stretch * rng.permutation((num_tokens - 1 - offset) // stretch)
        size = max(1, min(_GROUP_STRETCHES, len(starts) // _MIN_GROUPS))
        return cls(seed, number, stretch, tuple(np.split(starts, range(size, len(starts), size))))

    def windows(self, group: int, ctx: int) -> np.ndarray:
        """Return where a group's windows begin, in their order: (n,) int64.

        Where ctx does not divide the stretch, the rest of each stretch is left out.
        """
        inside = ctx * np.arange(self.stretch // ctx)
        starts = (self.groups[group][:, None] + inside).ravel()
        return np.random.default_rng([self.seed, self.number, group, ctx]).permutation(starts)


class Windows:
    """Training windows of a bin, batch after batch.

    Args:
        stream: The bin.
        seed: Decides the order.
        sampling: See the module.
        rank: This process among `world`.
        world: Processes that share each batch.
        longest: Tokens of the longest window that will be asked for.
    """

    def __init__(
        self,
        stream: Bin,
        seed: int,
        sampling: Sampling = "epoch",
        rank: int = 0,
        world: int = 1,
        *,
        longest: int,
    ) -> None:
        self.bin, self.seed, self.sampling, self.longest = stream, seed, sampling, longest
        self._rank, self._world = rank, world
        self._rng = np.random.default_rng(seed)
        self._epoch, self._group, self._used, self._ctx = 0, 0, 0, 0
        self._layout: Epoch | None = None

    def next(self, ctx: int, batch: int) -> Batch:
        """Return the next batch; both sizes may differ from the last call's.

        Args:
            ctx: Tokens of a window (T).
            batch: Windows of the whole batch, over all processes.

        Returns:
            This process's part of it: B = batch / world windows.

        Raises:
            DataError: The bin is shorter than one window.
            ConfigError: The processes cannot share the batch evenly, or ctx is above `longest`.
        """
        if ctx > self.longest:
            must, fix = f"be at most the longest, {self.longest}", "State the longest at the start."
            raise ConfigError("ctx", must, ctx, fix)
        if batch % self._world:
            must = f"be a multiple of the {self._world} processes"
            raise ConfigError("batch", must, batch, "Change the batch or the number of devices.")
        self.bin.require_window(self.longest if self.sampling == "epoch" else ctx)
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
        place = {name: getattr(self, f"_{name}") for name in _PLACE}
        return {**state, "longest": self.longest, **place}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a position, so that the next batch is the one that followed it.

        Raises:
            CheckpointError: The state is of another bin, seed, sampling, longest window or format,
                or is not whole.
        """
        own = self.state_dict()
        for name in ("version", "sampling", "seed", "tokens", "longest"):
            if state.get(name) != own.get(name):
                fix = "Resume with the bins and config of the run, or start a new one."
                raise CheckpointError(
                    f"windows.{name}", f"be {own.get(name)!r}", repr(state.get(name)), fix
                )
        try:
            if self.sampling == "random":
                self._rng.bit_generator.state = dict(state["rng"])
            else:
                place = {name: operator.index(state[name]) for name in _PLACE}
                self._check_place(**place)
                self._epoch, self._group, self._used, self._ctx = place.values()
        except (LookupError, OverflowError, TypeError, ValueError) as error:
            must, found = "be a position that was saved", f"{type(error).__name__}: {error}"
            raise CheckpointError("windows", must, found, "Resume from an older one.") from error

    def _check_place(self, epoch: int, group: int, used: int, ctx: int) -> None:
        """Raise ValueError for a place outside the epoch: it would be read past for ever."""
        if min(epoch, group, used, ctx) < 0 or ctx > self.longest:
            raise ValueError(f"epoch {epoch}, group {group}, used {used}, ctx {ctx}")
        groups = Epoch.of(self.bin.num_tokens, self.longest, self.seed, epoch).groups
        windows = len(groups[group]) * (self.longest // ctx) if ctx else 0
        if used and used >= windows:
            raise ValueError(f"{used} of {windows} windows used")

    def _draw_random(self, ctx: int, batch: int) -> np.ndarray:
        limit = self.bin.num_tokens - ctx - 1
        if limit < 1:
            must, found = f"hold at least {ctx + 2} tokens", f"{self.bin.num_tokens}"
            raise DataError(self.bin.path, must, found, "Pack more data, or lower ctx.")
        return self._rng.integers(0, limit, size=batch)

    def _draw_epoch(self, ctx: int, batch: int) -> np.ndarray:
        if ctx != self._ctx:
            if self._used:
                self._next_group()
            self._ctx = ctx
        parts: list[np.ndarray] = []
        while (missing := batch - sum(map(len, parts))) > 0:
            starts = self._epoch_layout().windows(self._group, ctx)
            parts.append(starts[self._used : self._used + missing])
            self._used += len(parts[-1])
            if self._used == len(starts):
                self._next_group()
        return np.concatenate(parts)

    def _next_group(self) -> None:
        self._group, self._used = self._group + 1, 0
        if self._group == len(self._epoch_layout().groups):
            self._epoch, self._group = self._epoch + 1, 0

    def _epoch_layout(self) -> Epoch:
        """Return how the current epoch is read; kept until it ends (8 bytes a stretch)."""
        if self._layout is None or self._layout.number != self._epoch:
            self._layout = Epoch.of(self.bin.num_tokens, self.longest, self.seed, self._epoch)
        return self._layout


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
