"""The sparse operators as nodes of a graph, their dtype and their memory."""

import pytest
import torch
from torch import Tensor

from shadow_model.nn.attention import sparse_attention
from shadow_model.nn.documents import document_starts
from shadow_model.nn.index import select_blocks
from shadow_model.nn.sparse import num_plain_tokens

BLOCK, TOP = 8, 2


def problem(tokens: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(41)
    query, key, value, iq, ik = (
        torch.randn(1, tokens, *rest, generator=generator)
        for rest in ((2, 4), (1, 4), (1, 4), (4,), (4,))
    )
    return query.requires_grad_(), key.requires_grad_(), value, select_blocks(iq, ik, BLOCK, TOP)


@pytest.mark.parametrize("documents", [False, True])
def test_operators_are_well_formed_for_compiled_graphs(documents: bool) -> None:
    query, key, value, chosen = problem(37)
    ids = torch.zeros(1, 37, dtype=torch.int64)
    ids[0, 25] = 1
    first = document_starts(ids, 1)[:, :-1] if documents else None
    rest = query.detach()[:, num_plain_tokens(37, BLOCK, TOP) :].requires_grad_()
    arguments = (rest, key, value, chosen, first, BLOCK, TOP)
    operators = torch.ops.shadow_model
    torch.library.opcheck(operators.block_sparse_attention.default, arguments)
    index = torch.randn(1, 37, 4)
    torch.library.opcheck(operators.select_blocks.default, (index, index, first, BLOCK, TOP))
    if first is not None:
        arguments = (query, key, value, first)
        torch.library.opcheck(operators.document_attention.default, arguments)


def test_autocast_leaves_it_in_float32() -> None:
    query, key, value, chosen = problem(37)
    plain = num_plain_tokens(37, BLOCK, TOP)
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.ops.shadow_model.block_sparse_attention(
            query[:, plain:], key, value, chosen, None, BLOCK, TOP
        )[0]
    expected = sparse_attention(query, key, value, chosen, BLOCK, TOP)[:, plain:]
    assert found.dtype == torch.float32
    assert torch.equal(found.flatten(2), expected)


def test_no_tensor_grows_with_the_square_of_the_window() -> None:
    assert largest_tensor(4096) <= 2.2 * largest_tensor(2048)
    # T·T is 4.2 million; the largest here are the queries gathered two at a time
    assert largest_tensor(2048) < 2048 * 2048 / 30


def largest_tensor(tokens: int) -> int:
    query, key, value, chosen = problem(tokens)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else (out,):
                if isinstance(tensor, Tensor) and tensor.dtype is torch.float32:
                    largest = max(largest, tensor.numel())
            return out

    with Watch():
        sparse_attention(query, key, value, chosen, BLOCK, TOP).sum().backward()
    return largest


def test_selection_holds_a_bounded_number_of_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    index = torch.randn(2, 700, 4, generator=torch.Generator().manual_seed(42))
    whole = select_blocks(index, index, BLOCK, TOP)
    monkeypatch.setattr("shadow_model.nn.index._TILE_SCORES", 2 * 700 * 3 * BLOCK)
    assert torch.equal(select_blocks(index, index, BLOCK, TOP), whole)
