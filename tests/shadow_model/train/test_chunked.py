"""Rows chunk by chunk: the whole row's numbers, and gradients cut exactly where it was asked."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shadow_model.nn.chunking import ChunkIn, ChunkOut, Term
from shadow_model.slab.scan import masked_scan
from shadow_model.train.chunked import DetachPolicy, checkpointed_chunk, split, sum_terms, train_row

VOCABULARY, WIDTH, TOKENS = 11, 6, 48
TOLERANCE = 1e-12  # float64, losses of order 100
POLICIES: tuple[DetachPolicy, ...] = ("never", "every", 2)


class Leaky(nn.Module):
    """One leaky state a channel over embedded tokens, with a loss over the next."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.table = nn.Parameter(torch.randn(VOCABULARY, WIDTH, generator=draw).double())
        self.decay = nn.Parameter(torch.randn(WIDTH, generator=draw).double())

    def chunk(self, x: ChunkIn, carry: Any = None) -> ChunkOut:
        embedded = self.table[x.ids]
        found = masked_scan(
            torch.sigmoid(self.decay),
            embedded,
            carry["state"] if carry else None,
            reset_BT=x.reset,
            write_BT=x.write,
            valid_BT=x.valid,
        )
        assert x.targets is not None
        logits = found.visible @ self.table.t()
        losses = nn.functional.cross_entropy(logits.mT, x.targets, reduction="none")
        terms = {
            "lm": Term((losses * x.valid).sum(), x.valid.sum().double()),
            "size": Term(found.visible.square().sum(), torch.tensor(1.0).double()),
        }
        stats = {"last": found.last.detach()}
        return ChunkOut(found.visible, {"state": found.last}, terms, stats)


def row(seed: int = 0) -> ChunkIn:
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(VOCABULARY, (2, TOKENS + 1), generator=draw)
    valid = torch.rand(2, TOKENS, generator=draw) < 0.8
    reset = torch.rand(2, TOKENS, generator=draw) < 0.05
    return ChunkIn(ids[:, :-1], ids[:, 1:], valid, valid, reset)


def gradients(model: nn.Module) -> list[Tensor]:
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return found


def trained(size: int, **how: Any) -> tuple[Any, list[Tensor]]:
    model, x = Leaky(), row()
    weights = {"lm": float(x.valid.sum())}
    given = {"loss_weights": {"lm": 1.0}, "row_weights": weights, "keep_outs": True, **how}
    result = train_row(model, x, size=size, **given)
    return result, gradients(model)


def whole() -> tuple[ChunkOut, list[Tensor]]:
    model = Leaky()
    out = model.chunk(row())
    (out.terms["lm"].total / out.terms["lm"].weight).backward()
    return out, gradients(model)


def worst(ones: list[Tensor], others: list[Tensor]) -> float:
    return max(float((a - b).detach().abs().max()) for a, b in zip(ones, others, strict=True))


@pytest.mark.parametrize("size", [1, 7, 16, 48, 99])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_row_is_the_same_whatever_the_chunks(size: int, policy: DetachPolicy) -> None:
    result, _ = trained(size, detach_policy=policy)
    expected, _ = whole()
    assert worst([result.outs], [expected.out]) <= TOLERANCE
    assert worst([result.carry["state"]], [expected.carry["state"]]) <= TOLERANCE
    lm = result.terms["lm"]
    assert worst([*lm], [*expected.terms["lm"]]) <= TOLERANCE
    assert not any(t.requires_grad for t in (*lm, result.carry["state"], result.outs))


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("size", [7, 16])
def test_gradients_through_all_chunks_are_those_of_the_row(size: int, checkpointed: bool) -> None:
    _, found = trained(size, detach_policy="never", checkpointed=checkpointed)
    _, expected = whole()
    assert worst(found, expected) <= TOLERANCE


@pytest.mark.parametrize("every", [1, 2, 3])
def test_gradients_are_cut_after_as_many_chunks_as_asked(every: int) -> None:
    _, found = trained(8, detach_policy=every)
    model, x, carry = Leaky(), row(), None
    count, total = float(x.valid.sum()), torch.zeros(()).double()
    for number, chunk in enumerate(split(x, 8), 1):
        out = model.chunk(chunk, carry)
        total, carry = total + out.terms["lm"].total / count, out.carry
        if number % every == 0:
            carry = {"state": carry["state"].detach()}
    total.backward()
    assert worst(found, gradients(model)) <= TOLERANCE
    assert worst(found, whole()[1]) > 1e-4, "it is a truncation"


def test_a_term_that_is_weighted_later_has_the_weight_of_its_own_chunks() -> None:
    model, x = Leaky(), row()
    train_row(model, x, size=16, loss_weights={"size": 0.5})
    found = gradients(model)
    carry, total = None, torch.zeros(()).double()
    for chunk in split(x, 16):
        out = model.chunk(chunk, carry)
        carry = {"state": out.carry["state"].detach()}
        total = total + 0.5 * out.terms["size"].total
    total.backward()
    assert worst(found, gradients(model)) <= TOLERANCE


def test_recomputed_chunks_keep_less_than_a_row() -> None:
    def saved_bytes(**how: Any) -> int:
        kept = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal kept
            kept += tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            checkpointed_chunk(Leaky(), row(), **how)
        return kept

    assert saved_bytes(enabled=True) < saved_bytes(enabled=False) / 10


def test_terms_of_some_chunks_only_are_added_up() -> None:
    one, two = (
        Term(torch.tensor(2.0), torch.tensor(1.0)),
        Term(torch.tensor(3.0), torch.tensor(4.0)),
    )
    summed = sum_terms([{"a": one}, {"a": two, "b": two}])
    assert [float(v) for v in summed["a"]] == [5.0, 5.0]
    assert [float(v) for v in summed["b"]] == [3.0, 4.0]


@pytest.mark.parametrize("policy", ["always", 0, -1, True, 1.5])
def test_what_is_no_policy_is_refused(policy: Any) -> None:
    with pytest.raises(ValueError, match="detach_policy must be"):
        trained(8, detach_policy=policy)


def test_a_chunk_holds_tokens() -> None:
    with pytest.raises(ValueError, match="at least 1 token, found 0"):
        trained(0)
