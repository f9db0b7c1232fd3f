"""Row-wise Adam against torch's dense one, and what late rows, clipping and memory are like."""

import pytest
import torch
from torch import Tensor, nn

from shadow_model.errors import CheckpointError
from shadow_model.nn.memory_rows import LearnedRows
from shadow_model.nn.ngrams import NUM_HEADS, size_for
from shadow_model.train.device import choose_device
from shadow_model.train.rowwise_adam import RowwiseAdam, memory_rows

SIZE = size_for(1024, 64)
BETAS, EPS, LR = (0.9, 0.95), 1e-8, 0.01


def _learner() -> tuple[LearnedRows, RowwiseAdam]:
    rows = LearnedRows(SIZE, quantise=False)
    return rows, RowwiseAdam(memory_rows(rows), BETAS, EPS)


def _learn(rows: LearnedRows, optimizer: RowwiseAdam, slots: Tensor, upstream: Tensor) -> None:
    optimizer.zero_grad()
    rows(slots).backward(upstream)
    optimizer.step(LR)
    rows.refresh()


def _slots(step: int, tokens: int = 6) -> Tensor:
    draw = torch.rand(1, tokens, NUM_HEADS, generator=torch.Generator().manual_seed(step))
    return (draw * torch.tensor(SIZE.primes)).long()


def _upstream(step: int, tokens: int = 6) -> Tensor:
    shape = (1, tokens, NUM_HEADS, SIZE.head_width)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1000 + step))


def test_rows_read_at_every_step_learn_as_under_dense_adam() -> None:
    rows, optimizer = _learner()
    dense = nn.Parameter(torch.zeros_like(rows.weight))
    adam = torch.optim.Adam([dense], lr=LR, betas=BETAS, eps=EPS)
    slots = _slots(0)
    index = (slots + rows.offsets).flatten()
    for step in range(30):
        _learn(rows, optimizer, slots, _upstream(step))
        dense.grad = torch.zeros_like(dense)
        dense.grad.index_add_(0, index, _upstream(step).flatten(0, -2))
        adam.step()
    assert torch.equal(rows.weight.abs().sum(1) > 0, dense.abs().sum(1) > 0)
    torch.testing.assert_close(rows.weight, dense, rtol=1e-5, atol=1e-7)


def test_a_row_first_read_late_learns_as_a_new_one() -> None:
    rows, optimizer = _learner()
    early = torch.zeros(1, 1, NUM_HEADS, dtype=torch.int64)
    for step in range(50):
        _learn(rows, optimizer, early, _upstream(step, 1))
    _learn(rows, optimizer, early + 1, _upstream(99, 1))
    fresh, fresh_optimizer = _learner()
    _learn(fresh, fresh_optimizer, early + 1, _upstream(99, 1))
    late = (early + 1 + rows.offsets).flatten()
    assert torch.equal(rows.weight[late], fresh.weight[late])
    # the first step of Adam has the learning rate's size whatever the gradient
    torch.testing.assert_close(rows.weight[late].abs(), torch.full((NUM_HEADS, 4), LR))


def test_rows_that_are_not_read_keep_weights_and_moments() -> None:
    rows, optimizer = _learner()
    _learn(rows, optimizer, _slots(0), _upstream(0))
    before = {n: t.clone() for n, t in optimizer.tensors().items()}
    weight = rows.weight.detach().clone()
    other = _slots(1)
    _learn(rows, optimizer, other, _upstream(1))
    kept = torch.ones(rows.num_rows, dtype=torch.bool)
    kept[(other + rows.offsets).flatten()] = False
    assert torch.equal(rows.weight[kept], weight[kept])
    assert not torch.equal(rows.weight[~kept], weight[~kept])
    after = optimizer.tensors()
    assert all(torch.equal(after[name][kept], t[kept]) for name, t in before.items())
    assert after["weight.step"].dtype == torch.int32


def test_gradients_of_micro_batches_are_summed_a_row_and_clipped_together() -> None:
    rows, optimizer = _learner()
    slots = torch.zeros(1, 6, NUM_HEADS, dtype=torch.int64)  # six gradients for each row
    for step in (0, 1):
        rows(slots).backward(_upstream(step))
    summed = (_upstream(0) + _upstream(1)).sum((0, 1))
    (norm,) = optimizer.clip(0.5)
    assert norm == pytest.approx(float(summed.norm()), rel=1e-5)
    assert rows.weight.grad is not None
    assert rows.weight.grad.is_coalesced()
    clipped = rows.weight.grad.to_dense()
    assert float(clipped.norm()) == pytest.approx(0.5, rel=1e-4)
    torch.testing.assert_close(clipped[rows.offsets], summed * 0.5 / summed.norm())
    optimizer.zero_grad()
    assert optimizer.clip(0.5).tolist() == [0]


def test_a_run_restored_goes_on_bit_for_bit() -> None:
    rows, optimizer = _learner()
    for step in range(3):
        _learn(rows, optimizer, _slots(step), _upstream(step))
    other, resumed = _learner()
    other.load_state_dict(rows.state_dict())
    other.refresh()
    resumed.restore({n: t.clone() for n, t in optimizer.tensors().items()}, "checkpoint")
    for step in range(3, 6):
        _learn(rows, optimizer, _slots(step), _upstream(step))
        _learn(other, resumed, _slots(step), _upstream(step))
    assert torch.equal(rows.weight, other.weight)
    assert torch.equal(rows.scale, other.scale)


@pytest.mark.parametrize("change", ["absent", "shape", "dtype"])
def test_state_that_does_not_fit_is_refused(change: str) -> None:
    _, optimizer = _learner()
    tensors = optimizer.tensors()
    step = tensors.pop("weight.step")
    if change != "absent":
        tensors["weight.step"] = step[1:] if change == "shape" else step.float()
    with pytest.raises(CheckpointError, match=r"weight\.step"):
        optimizer.restore(tensors, "optimizer.safetensors")


def test_without_memories_there_is_nothing_to_do() -> None:
    optimizer = RowwiseAdam({}, BETAS, EPS)
    optimizer.zero_grad()
    optimizer.step(LR)
    assert optimizer.clip(1.0).shape == (0,)
    assert optimizer.tensors() == {}


def test_a_million_rows_learn_in_bounded_memory() -> None:
    """Nothing dense of the memory's size besides weights and moments is ever made."""
    device, size = choose_device("cpu", "float32", 1), size_for(1_000_000, 256)
    cell_bytes = 4 * size.cells  # 64 MB
    device.reset_peak()
    before = device.peak_bytes()
    rows = LearnedRows(size)
    optimizer = RowwiseAdam(memory_rows(rows), BETAS, EPS)
    for moment in (rows.weight.data, *optimizer.tensors().values()):
        moment.zero_()  # every page is taken: the bound is not one of luck
    held = device.peak_bytes() - before
    assert held < 3.2 * cell_bytes
    rows.refresh()
    for step in range(3):
        draw = torch.rand(8, 256, NUM_HEADS, generator=torch.Generator().manual_seed(step))
        rows((draw * torch.tensor(size.primes)).long()).add(1).square().sum().backward()
        optimizer.clip(1.0)
        optimizer.step(LR)
        optimizer.zero_grad()
        rows.refresh()
    assert device.peak_bytes() - before - held < 0.7 * cell_bytes  # a dense gradient has 1.0
