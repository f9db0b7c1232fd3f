"""Rows of a memory: gathered, then ternary; scales that are exact however they came about."""

import pytest
import torch
from torch import Tensor

from shadow_model.errors import NumericsError
from shadow_model.nn.memory_rows import LearnedRows
from shadow_model.nn.ngrams import NUM_HEADS, MemorySize, size_for

SIZE = size_for(1024, 64)


def _filled(seed: int = 1, size: MemorySize = SIZE) -> LearnedRows:
    rows = LearnedRows(size)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        rows.weight.normal_(generator=generator)
        rows.weight[::3] = 0  # never touched
    rows.refresh()
    return rows


def _slots(seed: int = 2) -> Tensor:
    draw = torch.rand(2, 9, NUM_HEADS, generator=torch.Generator().manual_seed(seed))
    return (draw * torch.tensor(SIZE.primes)).long()


def test_a_gathered_row_is_the_ternary_row_of_its_heads_table() -> None:
    rows, slots = _filled(), _slots()
    found = rows(slots)
    assert found.shape == (2, 9, NUM_HEADS, 4)
    tables = rows.weight.detach().split(list(SIZE.primes))
    for head, table in enumerate(tables):
        used = table[(table != 0).any(1)]
        scale = used.double().abs().mean().float()
        assert rows.scale[head] == pytest.approx(float(scale), rel=1e-6)
        exact = (table / rows.scale[head]).round().clamp(-1, 1) * rows.scale[head]
        assert torch.equal(found[..., head, :], exact[slots[..., head]])


def test_gradients_pass_straight_through_and_are_sparse() -> None:
    rows, slots = _filled(), _slots()
    upstream = torch.randn(2, 9, NUM_HEADS, 4, generator=torch.Generator().manual_seed(5))
    rows(slots).backward(upstream)
    assert rows.weight.grad is not None
    assert rows.weight.grad.is_sparse
    expected = torch.zeros_like(rows.weight)
    expected.index_add_(0, (slots + rows.offsets).flatten(), upstream.flatten(0, -2))
    torch.testing.assert_close(rows.weight.grad.to_dense(), expected)


def test_rows_that_begin_at_zero_are_read_as_zero() -> None:
    assert not LearnedRows(SIZE)(_slots()).any()


def test_written_rows_give_the_scales_of_a_full_count_bit_for_bit() -> None:
    rows, generator = LearnedRows(SIZE), torch.Generator().manual_seed(7)
    for _ in range(20):
        index = torch.randperm(rows.num_rows, generator=generator)[:300]
        rows.write(index, torch.randn(300, 4, generator=generator) * 1e-3)
    rows.refresh()
    counted = LearnedRows(SIZE)
    counted.load_state_dict(rows.state_dict())
    counted.refresh()
    assert torch.equal(rows.scale, counted.scale)
    assert torch.equal(rows.magnitude, counted.magnitude)
    assert torch.equal(rows.touched, counted.touched)


def test_rows_changed_otherwise_ask_for_a_refresh() -> None:
    rows = _filled()
    with torch.no_grad():
        rows.weight.mul_(2)
    with pytest.raises(NumericsError, match="refresh"):
        rows(_slots())
    before = rows.scale.clone()
    rows.write(torch.tensor([0]), torch.zeros(1, 4))  # does not hide the other change
    rows.refresh()
    torch.testing.assert_close(rows.scale, 2 * before)  # row 0 was zero


def test_packed_rows_read_the_same() -> None:
    rows, slots = _filled(), _slots()
    packed = rows.packed()
    assert torch.equal(packed(slots), rows(slots))
    assert len(packed.trits) == -(-SIZE.cells // 5)


def test_without_quantisation_rows_are_read_as_they_are() -> None:
    rows = LearnedRows(SIZE, quantise=False)
    rows.load_state_dict(_filled().state_dict())
    slots = _slots()
    assert torch.equal(rows(slots), rows.weight[slots + rows.offsets])
