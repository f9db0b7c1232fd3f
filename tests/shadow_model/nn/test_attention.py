"""Dense and block-sparse attention against the masked form, in float64."""

import pytest
import torch
from torch import Tensor

from shadow_model.nn.attention import dense_attention, sparse_attention
from shadow_model.nn.index import select_blocks

BLOCK = 16
HEADS = 4


def problem(tokens: int, groups: int, top: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(31)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    query, key, value = (draw(2, tokens, n, 8) for n in (HEADS, groups, groups))
    index = (draw(2, tokens, 4).detach(), draw(2, tokens, 4).detach())
    return query, key, value, select_blocks(*index, BLOCK, top)


def masked(query: Tensor, key: Tensor, value: Tensor, chosen: Tensor | None) -> Tensor:
    tokens, repeats = query.shape[1], HEADS // key.shape[2]
    allowed = torch.ones(tokens, tokens, dtype=torch.bool).tril()[None, None]
    if chosen is not None:
        allowed = allowed & chosen.repeat_interleave(BLOCK, 2)[:, None, :, :tokens]
    key, value = (t.repeat_interleave(repeats, 2) for t in (key, value))
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key) * query.shape[-1] ** -0.5
    weight = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    return torch.einsum("bhqk,bkhd->bqhd", weight, value).flatten(2)


def output_and_gradients(out: Tensor, *leaves: Tensor) -> list[Tensor]:
    upstream = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out).sin()
    return [out.detach(), *torch.autograd.grad(out, leaves, upstream)]


@pytest.mark.parametrize("groups", [1, 2, HEADS])
@pytest.mark.parametrize(("tokens", "top"), [(96, 2), (101, 2), (101, 1), (40, 6), (9, 2)])
def test_sparse_equals_masked(tokens: int, top: int, groups: int) -> None:
    query, key, value, chosen = problem(tokens, groups, top)
    found = output_and_gradients(
        sparse_attention(query, key, value, chosen, BLOCK), query, key, value
    )
    expected = output_and_gradients(masked(query, key, value, chosen), query, key, value)
    # 1e-12: float64 sums in another order
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("groups", [1, 2, HEADS])
def test_dense_equals_masked(groups: int) -> None:
    query, key, value, _ = problem(101, groups, 2)
    found = output_and_gradients(dense_attention(query, key, value), query, key, value)
    expected = output_and_gradients(masked(query, key, value, None), query, key, value)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_sparse_equals_dense_where_all_is_chosen() -> None:
    query, key, value, chosen = problem(101, 1, 6)
    found = output_and_gradients(
        sparse_attention(query, key, value, chosen, BLOCK), query, key, value
    )
    expected = output_and_gradients(dense_attention(query, key, value), query, key, value)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_sparse_differs_from_dense_where_it_selects() -> None:
    query, key, value, chosen = problem(101, 1, 1)
    sparse, dense = (
        sparse_attention(query, key, value, chosen, BLOCK),
        dense_attention(query, key, value),
    )
    assert torch.allclose(sparse[:, : 2 * BLOCK], dense[:, : 2 * BLOCK])
    assert not torch.allclose(sparse[:, 4 * BLOCK :], dense[:, 4 * BLOCK :], atol=1e-3)


def test_sparse_survives_large_scores() -> None:
    query, key, value, chosen = problem(101, 1, 1)
    out = sparse_attention(query * 1e3, key * 1e3, value, chosen, BLOCK)
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(g).all() for g in output_and_gradients(out, query, key, value))
