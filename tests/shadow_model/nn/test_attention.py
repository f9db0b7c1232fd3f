"""Dense and block-sparse attention against the masked form, in float64, with and without documents.

The same tests run on CUDA where there is one, there by the written-out kernels of float64.
"""

import pytest
import torch
from torch import Tensor

from shadow_model.nn.attention import dense_attention, sparse_attention
from shadow_model.nn.documents import document_starts
from shadow_model.nn.index import select_blocks

BLOCK = 16
HEADS = 4
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SHAPES = [(96, 2), (101, 2), (101, 1), (40, 6), (9, 2)]


class Problem:
    """Leaves, what is chosen, and documents of a few tokens to several blocks."""

    def __init__(self, tokens: int, groups: int, top: int, documents: bool, device: str) -> None:
        generator = torch.Generator().manual_seed(31)

        def draw(*shape: int) -> Tensor:
            drawn = torch.randn(2, tokens, *shape, generator=generator, dtype=torch.float64)
            return drawn.to(device).requires_grad_()

        self.leaves = tuple(draw(n, 8) for n in (HEADS, groups, groups))
        self.top = top
        index = (draw(4).detach(), draw(4).detach())
        self.first: Tensor | None = None
        if documents:
            ids = (torch.rand(2, tokens, generator=generator) < 0.04).long().to(device)
            self.first = document_starts(ids, 1)[:, :-1]
        self.chosen = select_blocks(*index, BLOCK, top, self.first)

    def sparse(self) -> Tensor:
        return sparse_attention(*self.leaves, self.chosen, BLOCK, self.top, self.first)

    def dense(self) -> Tensor:
        return dense_attention(*self.leaves, self.first)

    def masked(self, chosen: Tensor | None) -> Tensor:
        query, key, value = self.leaves
        tokens, repeats = query.shape[1], HEADS // key.shape[2]
        time = torch.arange(tokens, device=query.device)
        allowed = (time <= time[:, None])[None]
        if chosen is not None:
            allowed = allowed & chosen.repeat_interleave(BLOCK, 2)[..., :tokens]
        if self.first is not None:
            allowed = allowed & (time >= self.first[..., None])
        key, value = (t.repeat_interleave(repeats, 2) for t in (key, value))
        scores = torch.einsum("bqhd,bkhd->bhqk", query, key) * query.shape[-1] ** -0.5
        weight = scores.masked_fill(~allowed[:, None], -torch.inf).softmax(-1)
        return torch.einsum("bhqk,bkhd->bqhd", weight, value).flatten(2)

    def with_gradients(self, out: Tensor) -> list[Tensor]:
        upstream = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out).sin()
        grads = torch.autograd.grad(out, self.leaves, upstream.to(out.device))
        return [out.detach(), *grads]


def assert_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    # 1e-12: float64 sums in another order
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("groups", [1, 2, HEADS])
@pytest.mark.parametrize(("tokens", "top"), SHAPES)
def test_sparse_equals_masked(
    tokens: int, top: int, groups: int, documents: bool, device: str
) -> None:
    problem = Problem(tokens, groups, top, documents, device)
    found = problem.with_gradients(problem.sparse())
    assert_equal(found, problem.with_gradients(problem.masked(problem.chosen)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("groups", [1, 2, HEADS])
def test_dense_equals_masked(groups: int, documents: bool, device: str) -> None:
    problem = Problem(101, groups, 2, documents, device)
    found = problem.with_gradients(problem.dense())
    assert_equal(found, problem.with_gradients(problem.masked(None)))


def test_many_gathered_parts_equal_one(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(300, 2, 3, True, "cpu")
    whole = problem.with_gradients(problem.sparse())
    monkeypatch.setattr("shadow_model.nn.sparse._GATHERED", 1000)
    assert_equal(problem.with_gradients(problem.sparse()), whole)


@pytest.mark.parametrize("sparse", [False, True])
def test_one_document_is_no_document(sparse: bool) -> None:
    problem = Problem(101, 2, 1, False, "cpu")
    compute = problem.sparse if sparse else problem.dense
    expected = problem.with_gradients(compute())
    problem.first = torch.zeros(2, 101, dtype=torch.int64)
    assert_equal(problem.with_gradients(compute()), expected)


def test_documents_do_not_see_each_other() -> None:
    problem = Problem(101, 1, 1, True, "cpu")
    assert problem.first is not None
    begins = int(problem.first[0, -1])
    assert begins > 0
    for compute in (problem.sparse, problem.dense):
        (grad,) = torch.autograd.grad(compute()[0, begins:].sum(), problem.leaves[2])
        assert not grad[0, :begins].any()
        assert grad[0, begins:].any()


def test_sparse_differs_from_dense_where_it_selects() -> None:
    problem = Problem(101, 1, 1, False, "cpu")
    sparse, dense = problem.sparse(), problem.dense()
    assert torch.allclose(sparse[:, : 2 * BLOCK], dense[:, : 2 * BLOCK])
    assert not torch.allclose(sparse[:, 4 * BLOCK :], dense[:, 4 * BLOCK :], atol=1e-3)


def test_sparse_survives_large_scores() -> None:
    problem = Problem(101, 1, 1, False, "cpu")
    with torch.no_grad():
        problem.leaves[0].mul_(1e3)
        problem.leaves[1].mul_(1e3)
    assert all(torch.isfinite(t).all() for t in problem.with_gradients(problem.sparse()))
