"""Muon: singular values near 1, a step as large as AdamW's, and exact resumes."""

from typing import Any

import pytest
import torch

from shadow_model.train.config import ArmConfig
from shadow_model.train.device import choose_device
from shadow_model.train.muon import MuonAdamW, orthogonalised
from shadow_model.train.optim import optimizer_tensors, restore_optimizer
from shadow_model.train.run import new_learner
from shadow_model.train.schedule import Phase
from shadow_model.train.step import Learner, TokenBatch, update


@pytest.mark.parametrize("shape", [(24, 24), (16, 40), (40, 16)])
def test_singular_values_come_near_one_and_vectors_stay(shape: tuple[int, int]) -> None:
    matrix = torch.randn(*shape, generator=torch.Generator().manual_seed(1)) * 1e-4
    found = orthogonalised(matrix)
    assert found.shape == matrix.shape
    values = torch.linalg.svdvals(found)
    assert 0.6 < float(values.min()) <= float(values.max()) < 1.3
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    turned = u.t() @ found @ v.t()
    # diagonal in the matrix's own singular vectors; 1e-3: float32 products
    assert float((turned - turned.diag().diag()).abs().max()) < 1e-3


@pytest.fixture
def learner(data: Any, arm: ArmConfig) -> Learner:
    muon = arm.replace(train=arm.train.replace(optimizer="muon"))
    return new_learner(muon, data.table, choose_device("cpu", "auto", 1))


def _batch(seed: int) -> TokenBatch:
    ids = torch.randint(0, 96, (4, 33), generator=torch.Generator().manual_seed(seed))
    return TokenBatch(ids[:, :-1], ids[:, 1:], None)


PHASE = Phase(32, 2, False, 1)


def test_blocks_move_by_muon_and_all_else_by_adamw(learner: Learner) -> None:
    before = {n: p.detach().clone() for n, p in learner.model.named_parameters()}
    update(learner, _batch(0), PHASE, 20)
    lr = learner.optimizer.param_groups[0]["lr"]
    for name, parameter in learner.model.named_parameters():
        state, step = learner.optimizer.state[parameter], (parameter - before[name]).detach()
        assert parameter.grad is not None
        if name.startswith(("pre.", "core.", "coda.")):
            assert set(state) == {"step", "exp_avg"}
            # 0.2 √(larger side) · singular values of 0.7 to 1.2 over √(values): at most lr · 0.3
            assert 0 < float(step.square().mean().sqrt()) < 0.3 * lr
        else:
            assert "exp_avg_sq" in state


def test_resumed_equals_unbroken(learner: Learner, data: Any, arm: ArmConfig) -> None:
    update(learner, _batch(0), PHASE, 0)
    muon = arm.replace(train=arm.train.replace(optimizer="muon"))
    again = new_learner(muon, data.table, learner.device)
    again.model.load_state_dict(learner.model.state_dict())
    assert isinstance(again.optimizer, MuonAdamW)
    tensors = optimizer_tensors(learner.model, learner.optimizer)
    restore_optimizer(again.model, again.optimizer, tensors, "test")
    for one in (learner, again):
        update(one, _batch(1), PHASE, 1)
    own = learner.model.state_dict()
    assert all(torch.equal(t, own[n]) for n, t in again.model.state_dict().items())
