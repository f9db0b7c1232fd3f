"""The three primitives against loops over tokens, in float64: outputs, states, all gradients."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from shadow_model.slab.memory import linear_memory
from shadow_model.slab.scan import masked_scan, recurrence
from shadow_model.slab.shift import masked_shift

SIZES = (1, 7, 8, 50, 97)
TOLERANCE = 2e-13  # sums of some hundred terms of order 1 in float64


class Masks(NamedTuple):
    reset: Tensor
    write: Tensor
    valid: Tensor


def masks(tokens: int, seed: int = 0, rows: int = 3) -> Masks:
    """Return random masks: some documents, some tokens read-only, some padding."""
    draw = torch.Generator().manual_seed(seed)
    valid = torch.rand(rows, tokens, generator=draw) < 0.9
    write = valid & (torch.rand(rows, tokens, generator=draw) < 0.7)
    return Masks(torch.rand(rows, tokens, generator=draw) < 0.08, write, valid)


def normal(*shape: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw, dtype=torch.float64).requires_grad_()


def unit(*shape: int, seed: int) -> Tensor:
    return torch.sigmoid(normal(*shape, seed=seed)).detach().requires_grad_()


def agree(ours: Callable[..., Any], theirs: Callable[..., Any], *leaves: Tensor) -> None:
    """Check that two functions of the leaves give the same, and the same gradients."""
    results = []
    for function in (ours, theirs):
        outs = [out for out in function(*leaves) if out is not None]
        draw = torch.Generator().manual_seed(9)
        total = sum(
            (out * torch.randn(out.shape, generator=draw, dtype=out.dtype)).sum() for out in outs
        )
        results.append([*outs, *torch.autograd.grad(total, leaves)])
    for one, other in zip(*results, strict=True):
        assert (one - other).abs().max() <= TOLERANCE


def scan_loop(a: Tensor, b: Tensor, first: Tensor, by: Masks) -> tuple[Tensor, Tensor]:
    state, seen = first, []
    for t in range(b.shape[1]):
        state = torch.where(by.reset[:, t, None], 0.0, state)
        new = a[:, t] * state + b[:, t]
        seen.append(torch.where(by.valid[:, t, None], new, 0.0))
        state = torch.where(by.write[:, t, None], new, state)
    return torch.stack(seen, 1), state


@pytest.mark.parametrize("tokens", SIZES)
def test_scan_is_the_loop(tokens: int) -> None:
    by = masks(tokens)

    def ours(a: Tensor, b: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        found = masked_scan(a, b, first, reset_BT=by.reset, write_BT=by.write, valid_BT=by.valid)
        return found.visible, found.last

    leaves = unit(3, tokens, 4, seed=1), normal(3, tokens, 4, seed=2), normal(3, 4, seed=3)
    agree(ours, lambda a, b, first: scan_loop(a, b, first, by), *leaves)


def test_recurrence_has_its_own_gradient() -> None:
    leaves = unit(2, 19, 3, seed=1), normal(2, 19, 3, seed=2), normal(2, 3, seed=3)
    assert torch.autograd.gradcheck(recurrence, leaves)


@pytest.mark.parametrize("strong", [False, True])
def test_scan_in_float32_keeps_its_digits_whatever_the_decay(strong: bool) -> None:
    a = unit(2, 1024, 8, seed=1).detach() ** (6.0 if strong else 0.01)
    b, first = normal(2, 1024, 8, seed=2).detach(), torch.zeros(2, 8, dtype=torch.float64)
    exact = recurrence(a, b, first)
    error = (recurrence(a.float(), b.float(), first.float()) - exact).abs().max()
    assert error <= 1e-5 * exact.abs().max()


def test_held_states_are_those_before_unwritten_contributions() -> None:
    by = masks(40)
    a, b = unit(3, 40, 4, seed=1), normal(3, 40, 4, seed=2)
    given = {"reset_BT": by.reset, "write_BT": by.write, "valid_BT": by.valid}
    found = masked_scan(a, b, None, **given)
    for t in range(40):
        cut = {name: mask[:, : t + 1] for name, mask in given.items()}
        part = masked_scan(a[:, : t + 1], b[:, : t + 1], None, **cut)
        assert (part.last - found.held[:, t]).abs().max() <= TOLERANCE


def shift_loop(x: Tensor, before: Tensor, by: Masks) -> tuple[Tensor, Tensor]:
    num, rows = before.shape[1], []
    lasts = []
    for row in range(len(x)):
        past, taps = list(before[row].unbind(0)), []
        for t in range(x.shape[1]):
            if by.reset[row, t]:
                past = [torch.zeros_like(x[row, 0])] * num
            taps.append(torch.stack(past[-1 : -num - 1 : -1]))
            if by.write[row, t]:
                past.append(x[row, t])
        rows.append(torch.stack(taps, 1))
        lasts.append(torch.stack(past[-num:]))
    return torch.stack(rows, 1), torch.stack(lasts)


@pytest.mark.parametrize("tokens", SIZES)
@pytest.mark.parametrize("num_taps", [1, 3])
def test_shift_is_the_loop(tokens: int, num_taps: int) -> None:
    by = masks(tokens)

    def ours(x: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        return masked_shift(x, before, num_taps, reset_BT=by.reset, write_BT=by.write)

    leaves = normal(3, tokens, 2, seed=1), normal(3, num_taps, 2, seed=2)
    agree(ours, lambda x, before: shift_loop(x, before, by), *leaves)


def memory_loop(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    weight: Tensor,
    first: Tensor,
    by: Masks,
    rule: str,
) -> tuple[Tensor, Tensor]:
    state, outs = first, []
    for t in range(q.shape[2]):
        state = torch.where(by.reset[:, t, None, None, None], 0.0, state)
        decayed = decay[:, :, t, None, None].exp() * state
        key, value = k[:, :, t], v[:, :, t]
        if rule == "delta":
            value = value - (key.unsqueeze(-2) @ decayed).squeeze(-2)
        added = key.unsqueeze(-1) * (weight[:, :, t, None] * value).unsqueeze(-2)
        new = decayed + added
        outs.append((q[:, :, t].unsqueeze(-2) @ new).squeeze(-2))
        state = torch.where(by.write[:, t, None, None, None], new, state)
    return torch.stack(outs, 2), state


@pytest.mark.parametrize("tokens", SIZES)
@pytest.mark.parametrize("rule", ["gla", "delta"])
def test_memory_is_the_loop(tokens: int, rule: Any) -> None:
    by = masks(tokens)

    def ours(*leaves: Tensor) -> Any:
        return linear_memory(*leaves, reset_BT=by.reset, write_BT=by.write, rule=rule, block=16)

    keys = [normal(3, 2, tokens, 3, seed=s) for s in (1, 2)]
    keys = [(k / k.norm(dim=-1, keepdim=True)).detach().requires_grad_() for k in keys]
    decay = (-normal(3, 2, tokens, seed=4).detach().abs()).requires_grad_()
    leaves = (
        *keys, normal(3, 2, tokens, 4, seed=3), decay, unit(3, 2, tokens, seed=5),
        normal(3, 2, 3, 4, seed=6),
    )  # fmt: skip
    agree(ours, lambda *given: memory_loop(*given, by, rule), *leaves)


def run_all(by: Masks, states: list[Tensor | None], first: int, last: int) -> list[Tensor]:
    """Run the primitives over a part of 48 tokens; returns outputs, then states."""
    part = slice(first, last)
    a, b = unit(3, 48, 4, seed=1)[:, part], normal(3, 48, 4, seed=2)[:, part]
    q, k, v = (normal(3, 2, 48, 3, seed=s)[:, :, part] for s in (3, 4, 5))
    decay, weight = -unit(3, 2, 48, seed=6)[:, :, part], unit(3, 2, 48, seed=7)[:, :, part]
    given = {"reset_BT": by.reset[:, part], "write_BT": by.write[:, part]}
    scanned = masked_scan(a, b, states[0], valid_BT=by.valid[:, part], **given)
    shifted = masked_shift(b, states[1], 3, **given)
    k = k / k.norm(dim=-1, keepdim=True)
    recalled = linear_memory(q, k, v, decay, weight, states[2], rule="delta", block=16, **given)
    outs = [scanned.visible, shifted.taps.movedim(0, 2), recalled.out.movedim(1, 2)]
    return [*outs, scanned.last, shifted.last, recalled.last]


@pytest.mark.parametrize("sizes", [[16, 16, 16], [7, 9, 1, 31], [48], [40, 8]])
def test_chunks_are_the_whole(sizes: list[int]) -> None:
    by, first = masks(48, seed=5), 0
    whole = run_all(by, [None] * 3, 0, 48)
    states: list[Tensor | None] = [None] * 3
    parts: list[list[Tensor]] = []
    for size in sizes:
        *outs, one, two, three = run_all(by, states, first, first + size)
        states, first = [one, two, three], first + size
        parts.append(outs)
    for outs, expected in zip(zip(*parts, strict=True), whole[:3], strict=True):
        assert (torch.cat(outs, 1) - expected).abs().max() <= TOLERANCE
    for state, expected in zip(states, whole[3:], strict=True):
        assert state is not None
        assert (state - expected).abs().max() <= TOLERANCE


def test_no_state_is_a_state_of_zeros() -> None:
    by = masks(48)
    none = run_all(by, [None] * 3, 0, 48)
    zeros = run_all(by, [torch.zeros_like(state) for state in none[3:]], 0, 48)
    assert all(torch.equal(one, other) for one, other in zip(none, zeros, strict=True))
