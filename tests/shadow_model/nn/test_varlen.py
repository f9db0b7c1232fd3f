"""The way of packed runs: its arithmetic on a CPU by a plain statement of the kernels, and on CUDA.

On a CPU torch's two CUDA kernels are replaced by loops over runs; everything around them (packing,
bounds, merging, shares of gradients) is what runs on CUDA.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from shadow_model.nn import varlen
from shadow_model.nn.attention import dense_attention, sparse_attention
from shadow_model.nn.documents import document_starts
from shadow_model.nn.flash import Attended, attend_backward_plainly, attend_plainly
from shadow_model.nn.index import select_blocks

BLOCK = 16


def tiles(runs: varlen.Runs, *tensors: Tensor) -> list[list[Tensor]]:
    """Return each run's part of the query (and what goes with it), then of key and value."""
    found = []
    bounds = (*[runs.query_bounds] * (len(tensors) - 2), runs.key_bounds, runs.key_bounds)
    for i in range(len(runs.query_bounds) - 1):
        parts = [x[b[i] : b[i + 1]] for x, b in zip(tensors, bounds, strict=True)]
        found.append([part.transpose(0, 1)[None] for part in parts])
    return found


def stated(query: Tensor, key: Tensor, value: Tensor, runs: varlen.Runs) -> Attended:
    assert int(runs.query_bounds.diff().max()) <= runs.longest[0]
    parts = [attend_plainly(*tile, causal=runs.causal) for tile in tiles(runs, query, key, value)]
    return Attended(*(torch.cat([p[i][0].transpose(0, 1) for p in parts]) for i in (0, 1)))


def stated_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, whole: Attended, runs: varlen.Runs
) -> tuple[Any, ...]:
    parts = []
    for g, o, q, k, v in tiles(runs, grad, whole.out, query, key, value):
        place = len(parts)
        first, last = runs.query_bounds[place], runs.query_bounds[place + 1]
        log_sum = whole.log_sum[first:last].t()[None]
        parts.append(attend_backward_plainly(g, q, k, v, o, log_sum, causal=runs.causal))
    return tuple(torch.cat([p[i][0].transpose(0, 1) for p in parts]) for i in range(3))


def results(
    tokens: int, groups: int, top: int, documents: bool, like: Tensor
) -> dict[str, tuple[Tensor, ...]]:
    generator = torch.Generator().manual_seed(44)

    def draw(*shape: int) -> Tensor:
        drawn = torch.randn(2, tokens, *shape, generator=generator, dtype=torch.float64)
        return drawn.to(like.device)

    leaves = [draw(n, 8).to(like.dtype).requires_grad_() for n in (4, groups, groups)]
    first = None
    if documents:
        ids = (torch.rand(2, tokens, generator=generator) < 0.04).long().to(like.device)
        first = document_starts(ids, 1)[:, :-1]
    chosen = select_blocks(draw(4), draw(4), BLOCK, top, first)
    outs = {
        "sparse": sparse_attention(*leaves, chosen, BLOCK, top, first),
        "dense": dense_attention(*leaves, first),
    }
    upstream = draw(32).to(like.dtype)
    return {n: (o.detach(), *torch.autograd.grad(o, leaves, upstream)) for n, o in outs.items()}


@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(("tokens", "top"), [(101, 1), (96, 2)])
def test_packed_runs_equal_tiles(
    tokens: int, top: int, groups: int, documents: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    like = torch.empty(0, dtype=torch.float64)
    expected = results(tokens, groups, top, documents, like)
    monkeypatch.setattr(varlen, "supports", lambda _: True)
    monkeypatch.setattr(varlen, "attend_runs", stated)
    monkeypatch.setattr(varlen, "attend_runs_backward", stated_backward)
    # 1e-12: float64 sums in another order
    found = results(tokens, groups, top, documents, like)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_only_half_precision_on_cuda_is_packed() -> None:
    assert not varlen.supports(torch.empty(3, 4, 64, dtype=torch.bfloat16))
    assert not varlen.supports(torch.empty(3, 4, 64))


@pytest.mark.gpu
@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("groups", [1, 4])
def test_packed_runs_on_cuda_equal_float64(groups: int, documents: bool) -> None:
    half = torch.empty(0, dtype=torch.bfloat16, device="cuda")
    found = results(101, groups, 1, documents, half)
    expected = results(101, groups, 1, documents, half.double())
    for name, tensors in found.items():
        for ours, exact in zip(tensors, expected[name], strict=True):
            # 2e-2: eight bits of mantissa, some products long
            assert float((ours - exact).norm() / exact.norm()) < 2e-2
