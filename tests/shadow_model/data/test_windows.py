import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadow_model.data.bins import Bin
from shadow_model.data.windows import Epoch, Windows, fixed_starts, fixed_windows
from shadow_model.errors import CheckpointError, ConfigError, DataError


def make_bin(tokens: int) -> Bin:
    """A bin whose ids are their positions, so that a window tells where it was read."""
    return Bin(Path("train.bin"), np.arange(tokens, dtype=np.uint32))


SIZES = st.tuples(st.integers(1, 12), st.integers(0, 300)).map(lambda s: (s[0], s[0] + 1 + s[1]))
"""A ctx, and the tokens of a bin that holds at least one window of it."""


def targets_of(starts: Iterable[int], ctx: int, tokens: int) -> np.ndarray:
    """Return how often each token of a bin is a target of windows."""
    read = np.zeros(tokens, int)
    for start in starts:
        read[start + 1 : start + 1 + ctx] += 1
    return read


@given(SIZES, st.integers(0, 3), st.integers(0, 3), st.sampled_from([1, 2, 4]))
def test_an_epoch_covers_each_token_once_but_for_less_than_a_stretch_at_each_end(
    sizes: tuple[int, int], seed: int, epoch: int, parts: int
) -> None:
    ctx, tokens = sizes[0], parts * sizes[1]
    layout = Epoch.of(tokens, parts * ctx, seed, epoch)
    starts = np.concatenate([layout.windows(g, ctx) for g in range(len(layout.groups))])
    read = targets_of(starts, ctx, tokens)
    inside = np.flatnonzero(read)
    assert read[inside[0] : inside[-1] + 1].tolist() == [1] * (len(starts) * ctx)
    assert inside[0] - 1 < parts * ctx
    assert tokens - 1 - inside[-1] < parts * ctx


@given(SIZES, st.integers(1, 7), st.integers(0, 3))
def test_batches_give_every_window_of_an_epoch_before_any_of_the_next(
    sizes: tuple[int, int], batch: int, seed: int
) -> None:
    ctx, tokens = sizes
    windows = Windows(make_bin(tokens), seed, longest=ctx)
    epochs = [Epoch.of(tokens, ctx, seed, e) for e in range(3)]
    expected = [e.windows(g, ctx) for e in epochs for g in range(len(e.groups))]
    joined = np.concatenate(expected)
    drawn = [windows.next(ctx, batch).starts for _ in range(len(joined) // batch)]
    seen = np.concatenate([*drawn, np.empty(0, np.int64)])
    assert seen.tolist() == joined[: len(seen)].tolist()


@given(
    st.integers(60, 700),
    st.lists(st.tuples(st.sampled_from([4, 8, 16]), st.integers(1, 9)), max_size=5),
)
def test_no_token_is_read_twice_in_an_epoch_through_changes_of_ctx(
    tokens: int, phases: list[tuple[int, int]]
) -> None:
    windows, read = Windows(make_bin(tokens), 1, longest=16), np.zeros(tokens, int)
    for ctx, num in phases:
        for _ in range(num):
            starts = windows.next(ctx, 1).starts
            if windows.state_dict()["epoch"]:
                return
            read += targets_of(starts, ctx, tokens)
            assert read.max() <= 1


def test_a_change_of_ctx_leaves_out_less_than_a_group() -> None:
    layout = Epoch.of(4000, 16, 0, 0)
    assert {len(group) for group in layout.groups[:-1]} == {len(layout.groups[0])} == {15}
    windows, read = Windows(make_bin(4000), 0, longest=16), np.zeros(4000, int)
    for ctx in (4, 8, 16):
        for _ in range(1000):
            read += targets_of(windows.next(ctx, 1).starts, ctx, 4000)
            if ctx < 16 and windows.state_dict()["group"] == ctx // 2:
                break
            if windows.state_dict()["epoch"]:
                break
    assert read.max() == 1
    assert read.sum() > 4000 - 2 * 15 * 16 - 2 * 16


def test_epochs_differ_in_order_and_offset() -> None:
    first, second = (Epoch.of(10_000, 16, 0, epoch).groups[0] for epoch in (0, 1))
    assert first[0] % 16 != second[0] % 16
    assert sorted(first) != first.tolist()
    assert Epoch.of(10_000, 16, 1, 0).groups[0].tolist() != first.tolist()


def test_windows_of_a_group_are_mixed() -> None:
    layout = Epoch.of(10_000, 64, 0, 0)
    starts = layout.windows(0, 8)
    stretch_of = (starts - layout.groups[0].min()) // 64
    assert np.count_nonzero(np.diff(stretch_of)) > len(starts) / 2


@pytest.mark.parametrize("sampling", ["epoch", "random"])
def test_targets_are_the_ids_one_further(sampling: Any) -> None:
    batch = Windows(make_bin(1000), 0, sampling, longest=16).next(16, 4)
    assert batch.ids.shape == batch.targets.shape == (4, 16)
    assert batch.ids.dtype == batch.targets.dtype == batch.starts.dtype == np.int64
    np.testing.assert_array_equal(batch.ids, batch.starts[:, None] + np.arange(16))
    np.testing.assert_array_equal(batch.targets, batch.ids + 1)


def test_random_starts_are_those_of_one_generator_batch_after_batch() -> None:
    windows, rng = Windows(make_bin(1000), 5, "random", longest=64), np.random.default_rng(5)
    for ctx, batch in [(16, 4), (16, 4), (32, 2), (64, 1)]:
        expected = rng.integers(0, 1000 - ctx - 1, size=batch)
        assert windows.next(ctx, batch).starts.tolist() == expected.tolist()


@pytest.mark.parametrize("sampling", ["epoch", "random"])
@given(st.integers(0, 25), st.integers(0, 25))
def test_resumed_equals_unbroken_at_any_step_through_changes_of_ctx(
    sampling: Any, stop: int, first_phase: int
) -> None:
    stream = make_bin(200)  # 24 windows of ctx 8: the run crosses ends of epochs
    shapes = [(8, 4)] * first_phase + [(16, 2)] * 25
    unbroken = Windows(stream, 3, sampling, longest=16)
    expected = [unbroken.next(*shape).starts.tolist() for shape in shapes]
    broken = Windows(stream, 3, sampling, longest=16)
    seen = [broken.next(*shape).starts.tolist() for shape in shapes[:stop]]
    state = json.loads(json.dumps(broken.state_dict()))
    resumed = Windows(stream, 3, sampling, longest=16)
    resumed.next(8, 3)  # wherever it stood before
    resumed.load_state_dict(state)
    seen += [resumed.next(*shape).starts.tolist() for shape in shapes[stop:]]
    assert seen == expected


def test_reading_a_state_does_not_move() -> None:
    windows = Windows(make_bin(200), 0, longest=16)
    states = [windows.state_dict() for _ in range(2)]
    assert states[0] == states[1]


@pytest.mark.parametrize("sampling", ["epoch", "random"])
@pytest.mark.parametrize("world", [2, 4])
def test_processes_share_the_same_global_batches(sampling: Any, world: int) -> None:
    stream = make_bin(500)
    alone = Windows(stream, 0, sampling, longest=16)
    several = [Windows(stream, 0, sampling, rank, world, longest=16) for rank in range(world)]
    for ctx, size in [(8, 4), (8, 8), (16, 4)]:
        whole = alone.next(ctx, size)
        parts = [windows.next(ctx, size) for windows in several]
        assert {len(part.ids) for part in parts} == {size // world}
        np.testing.assert_array_equal(np.concatenate([p.ids for p in parts]), whole.ids)
    assert all(windows.state_dict() == alone.state_dict() for windows in several)


def test_a_window_above_the_longest_is_refused() -> None:
    with pytest.raises(ConfigError, match="at most the longest, 8"):
        Windows(make_bin(500), 0, longest=8).next(16, 1)


def test_a_batch_that_processes_cannot_share_is_refused() -> None:
    with pytest.raises(ConfigError, match="multiple of the 4"):
        Windows(make_bin(500), 0, world=4, longest=8).next(8, 6)


@pytest.mark.parametrize("sampling", ["epoch", "random"])
@pytest.mark.parametrize("tokens", [0, 1, 8])
def test_a_bin_shorter_than_a_window_is_refused(sampling: Any, tokens: int) -> None:
    with pytest.raises(DataError, match=f"found {tokens} tokens"):
        Windows(make_bin(tokens), 0, sampling, longest=8).next(8, 1)


def test_random_sampling_needs_a_token_more() -> None:
    assert Windows(make_bin(9), 0, longest=8).next(8, 1).starts.tolist() == [0]
    assert Windows(make_bin(10), 0, "random", longest=8).next(8, 1).starts.tolist() == [0]
    with pytest.raises(DataError, match="at least 10 tokens"):
        Windows(make_bin(9), 0, "random", longest=8).next(8, 1)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"version": 1}, "version"),
        ({"seed": 1}, "seed"),
        ({"sampling": "random"}, "sampling"),
        ({"tokens": 201}, "tokens"),
        ({"longest": 8}, "longest"),
        ({"epoch": None}, "position"),
    ],
)
def test_a_state_of_something_else_is_refused(change: dict[str, Any], named: str) -> None:
    windows = Windows(make_bin(200), 0, longest=16)
    with pytest.raises(CheckpointError, match=named):
        windows.load_state_dict({**windows.state_dict(), **change})


@pytest.mark.parametrize("rng", [None, {}, {"bit_generator": "MT19937"}, 3])
def test_a_generator_state_that_is_none_is_refused(rng: Any) -> None:
    windows = Windows(make_bin(200), 0, "random", longest=16)
    with pytest.raises(CheckpointError, match="position"):
        windows.load_state_dict({**windows.state_dict(), "rng": rng})


@given(SIZES, st.none() | st.integers(1, 40))
def test_held_out_windows_are_apart_evenly_spaced_and_reach_both_ends(
    sizes: tuple[int, int], num: int | None
) -> None:
    ctx, tokens = sizes
    starts = fixed_starts(tokens, ctx, num)
    fit = (tokens - 1) // ctx
    assert len(starts) == (fit if num is None else min(num, fit))
    gaps = np.diff(starts)
    assert starts[0] == 0
    if len(starts) > 1:
        assert gaps.min() >= ctx
        assert gaps.max() - gaps.min() <= 1
        assert starts[-1] == tokens - 1 - ctx


def test_held_out_windows_are_the_same_whatever_the_batch() -> None:
    stream = make_bin(1000)
    one = list(fixed_windows(stream, 16, 10, batch=1))
    four = list(fixed_windows(stream, 16, 10, batch=4))
    assert [len(b.ids) for b in four] == [4, 4, 2]
    for name in ("ids", "targets", "starts"):
        np.testing.assert_array_equal(
            np.concatenate([getattr(b, name) for b in one]),
            np.concatenate([getattr(b, name) for b in four]),
        )


def test_held_out_windows_need_a_window() -> None:
    with pytest.raises(DataError, match="found 16 tokens"):
        next(fixed_windows(make_bin(16), 16))
