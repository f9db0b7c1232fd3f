"""The sparse operator as one node of a graph, and its memory."""

import torch
from torch import Tensor

from shadow_model.nn.index import select_blocks
from shadow_model.nn.sparse import block_sparse_attention


def problem(tokens: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(41)
    query, key, value, iq, ik = (
        torch.randn(1, tokens, *rest, generator=generator)
        for rest in ((2, 4), (1, 4), (1, 4), (4,), (4,))
    )
    return query.requires_grad_(), key.requires_grad_(), value, select_blocks(iq, ik, 8, 2)


def test_operator_is_well_formed_for_compiled_graphs() -> None:
    query, key, value, chosen = problem(37)
    torch.library.opcheck(
        torch.ops.shadow_model.block_sparse_attention.default, (query, key, value, chosen, 8)
    )


def test_autocast_leaves_it_in_float32() -> None:
    arguments = problem(37)
    with torch.autocast("cpu", torch.bfloat16):
        found = block_sparse_attention(*arguments, 8)
    assert found.dtype == torch.float32
    assert torch.equal(found, block_sparse_attention(*arguments, 8))


def test_no_tensor_is_as_large_as_a_score_matrix() -> None:
    tokens = 2048
    query, key, value, chosen = problem(tokens)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else (out,):
                if isinstance(tensor, Tensor):
                    largest = max(largest, tensor.numel())
            return out

    with Watch():
        block_sparse_attention(query, key, value, chosen, 8).sum().backward()
    # T·T is 4.2 million; the largest here is the choice itself, T · 256 blocks
    assert 0 < largest <= tokens * chosen.shape[2]
