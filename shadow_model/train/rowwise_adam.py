"""Adam for the rows of memories: lazy, with a step count for each row.

A row learns only where a batch reads it; its moments stay as they are in between. Each row counts
its own updates, so that one first read late is corrected for its young moments as a new one is (one
count for all would give a row first read at step 1001 0.447 of its step). Costs the rows read, not
the memory: gradients are sparse and summed a row before anything is computed.

Legend: N rows, U rows read, W width of a row.

Source: Adam (Kingma & Ba, arXiv 1412.6980, algorithm 1), as torch.optim.SparseAdam applies it.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from shadow_model.errors import CheckpointError
from shadow_model.nn.memory_rows import LearnedRows


class RowState(NamedTuple):
    """What is kept of the rows of a memory.

    Attributes:
        step: (N,) int32, updates of each row.
        exp_avg: (N, W) float32, first moment.
        exp_avg_sq: (N, W) float32, second moment.
    """

    step: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor


def memory_rows(model: nn.Module) -> dict[str, LearnedRows]:
    """Return the rows of a model's memories by the names of their weights."""
    found = ((n, m) for n, m in model.named_modules() if isinstance(m, LearnedRows))
    return {f"{name}.weight".removeprefix("."): module for name, module in found}


class RowwiseAdam:
    """The optimiser of all memories of a model; one without memories does nothing.

    Args:
        rows: Name of the weight -> rows.
        betas: Decay of both moments, an update.
        eps: Added to the root of the second moment.
    """

    def __init__(
        self, rows: Mapping[str, LearnedRows], betas: tuple[float, float], eps: float
    ) -> None:
        self._rows, self._betas, self._eps = dict(rows), betas, eps
        self._state = {name: _new_state(module.weight) for name, module in rows.items()}

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for module in self._rows.values():
            module.weight.grad = None

    @torch.no_grad()
    def clip(self, max_norm: float) -> Tensor:
        """Sum gradients a row, and scale all so that their joint L2 norm is at most `max_norm`.

        Returns:
            (memories,) float32: L2 norm of each gradient before scaling, 0 without.
        """
        weights = [module.weight for module in self._rows.values()]
        if not weights:
            return torch.zeros(0)
        norms = torch.stack([_coalesce(weight) for weight in weights])
        scale = (max_norm / (torch.linalg.vector_norm(norms) + 1e-6)).clamp_max(1.0)
        for weight in weights:
            if weight.grad is not None:
                weight.grad._values().mul_(scale)
        return norms

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Update the rows that have a gradient."""
        for name, module in self._rows.items():
            if module.weight.grad is not None:
                self._update(module, self._state[name], lr)

    def tensors(self) -> dict[str, Tensor]:
        """Return all state, by `<weight>.<field of RowState>`."""
        return {
            f"{name}.{field}": tensor
            for name, state in self._state.items()
            for field, tensor in state._asdict().items()
        }

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor], where: object) -> None:
        """Take saved state over.

        Raises:
            CheckpointError: A part is absent, or not of its shape and dtype.
        """
        for name, own in self.tensors().items():
            found = tensors.get(name)
            if found is None or found.shape != own.shape or found.dtype != own.dtype:
                shown = None if found is None else f"{tuple(found.shape)} {found.dtype}"
                must = f"hold {name}, {tuple(own.shape)} {own.dtype}"
                raise CheckpointError(where, must, shown, "Resume from an older checkpoint.")
            own.copy_(found)

    def _update(self, module: LearnedRows, state: RowState, lr: float) -> None:
        gradient = module.weight.grad
        assert gradient is not None
        gradient = gradient.coalesce()
        index, values = gradient.indices()[0], gradient.values()
        step = state.step[index] + 1
        first = state.exp_avg[index].lerp_(values, 1 - self._betas[0])
        second = state.exp_avg_sq[index].mul_(self._betas[1])
        second.addcmul_(values, values, value=1 - self._betas[1])
        for kept, new in zip(state, (step, first, second), strict=True):
            kept.index_copy_(0, index, new)
        young, old = (1 - beta ** step.double()[:, None] for beta in self._betas)
        root = second.div(old).sqrt_().add_(self._eps)
        change = first.div(young).div_(root).to(values.dtype)
        module.write(index, module.weight[index].sub_(change, alpha=lr))


def _new_state(weight: Tensor) -> RowState:
    step = torch.zeros(len(weight), dtype=torch.int32, device=weight.device)
    return RowState(step, torch.zeros_like(weight), torch.zeros_like(weight))


def _coalesce(weight: nn.Parameter) -> Tensor:
    """Sum a sparse gradient a row, in place of it; return its norm."""
    if weight.grad is None:
        return torch.zeros((), device=weight.device)
    weight.grad = weight.grad.coalesce()
    norm: Tensor = torch.linalg.vector_norm(weight.grad.values())
    return norm
