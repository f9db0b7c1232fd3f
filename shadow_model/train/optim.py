"""The optimiser of the body: AdamW, or Muon for the matrices of its blocks, with one learning rate.

Matrices decay, scalars (alpha) do not. The fused form is used on the CPU as well, where it is
several times faster than the default one.
Source: Loshchilov & Hutter, arXiv 1711.05101.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from shadow_model.errors import CheckpointError
from shadow_model.train.config import TrainConfig
from shadow_model.train.muon import MuonAdamW
from shadow_model.train.rowwise_adam import memory_rows

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
_BLOCKS = ("pre.", "core.", "coda.", "blocks.")


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Return the optimiser of what is trained, in the order of the names in the model."""
    muon = config.optimizer == "muon"
    named = list(trained_parameters(model))
    moved = {name for name, _ in named if muon and name.startswith(_BLOCKS)}
    trained = [parameter for name, parameter in named if name not in moved]
    matrices = [parameter for name, parameter in named if name in moved]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": config.weight_decay, "muon": True},
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    form = MuonAdamW if muon else torch.optim.AdamW
    return form(
        [group for group in groups if group["params"]],
        lr=config.lr,
        betas=config.betas,
        eps=config.eps,
        fused=True,
    )


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every group."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def clip_gradients(parameters: Sequence[nn.Parameter], max_norm: float) -> Tensor:
    """Scale all gradients together so that their joint L2 norm is at most `max_norm`.

    Args:
        parameters: Those trained; one that the loss did not reach may lack a gradient.

    Returns:
        (parameters,) float32 on their device: L2 norm of each gradient before scaling, 0 without.
    """
    reached = [i for i, p in enumerate(parameters) if p.grad is not None]
    gradients = [g for p in parameters if (g := p.grad) is not None]
    found = torch.stack(torch._foreach_norm(gradients))
    scale = (max_norm / (torch.linalg.vector_norm(found) + 1e-6)).clamp_max(1.0)
    torch._foreach_mul_(gradients, scale)
    norms = found.new_zeros(len(parameters))
    norms[reached] = found
    return norms


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return moments and count of every parameter, by `<parameter>.<moment>`."""
    return {
        f"{name}.{moment}": optimizer.state[parameter][moment]
        for name, parameter in trained_parameters(model)
        if parameter in optimizer.state
        for moment in MOMENTS
        if moment in optimizer.state[parameter]
    }


def restore_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], where: object
) -> None:
    """Put saved moments into an optimiser; a parameter without any saved one stays fresh.

    Raises:
        CheckpointError: A moment is absent, or not of its parameter's shape.
    """
    first_only = {id(p) for g in optimizer.param_groups if g.get("muon") for p in g["params"]}
    for name, parameter in trained_parameters(model):
        state = {moment: tensors.get(f"{name}.{moment}") for moment in MOMENTS}
        shapes = [None if t is None else tuple(t.shape) for t in state.values()]
        if not any(t is not None for t in state.values()):
            continue  # the loss had not reached it yet
        shape = tuple(parameter.shape)
        if shapes != [(), shape, None if id(parameter) in first_only else shape]:
            must = f"hold the moments of {name} in shape {tuple(parameter.shape)}"
            raise CheckpointError(where, must, shapes, "Resume from an older checkpoint.")
        optimizer.state[parameter] = {
            moment: tensor.to(parameter.device, torch.float32, copy=True)
            for moment, tensor in state.items()
            if tensor is not None
        }


def trained_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield what this optimiser trains, by name: all but the rows of memories (RowwiseAdam's)."""
    rows = memory_rows(model)
    return ((n, p) for n, p in model.named_parameters() if p.requires_grad and n not in rows)
