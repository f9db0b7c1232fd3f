"""The optimiser of the body: AdamW with one learning rate for all.

Matrices decay, scalars (alpha) do not. The fused form is used on the CPU as well, where it is
several times faster than the default one.
Source: Loshchilov & Hutter, arXiv 1711.05101.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from shadow_model.errors import CheckpointError
from shadow_model.train.config import TrainConfig

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Return AdamW over the trained parameters, in the order of their names in the model."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
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
    """Return both moments and the count of every parameter, by `<parameter>.<moment>`."""
    return {
        f"{name}.{moment}": optimizer.state[parameter][moment]
        for name, parameter in _trained(model)
        if parameter in optimizer.state
        for moment in _MOMENTS
    }


def restore_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], where: object
) -> None:
    """Put saved moments into an optimiser; a parameter without any saved one stays fresh.

    Raises:
        CheckpointError: A moment is absent, or not of its parameter's shape.
    """
    for name, parameter in _trained(model):
        state = {moment: tensors.get(f"{name}.{moment}") for moment in _MOMENTS}
        shapes = [None if t is None else tuple(t.shape) for t in state.values()]
        if not any(t is not None for t in state.values()):
            continue  # the loss had not reached it yet
        if shapes != [(), tuple(parameter.shape), tuple(parameter.shape)]:
            must = f"hold the moments of {name} in shape {tuple(parameter.shape)}"
            raise CheckpointError(where, must, shapes, "Resume from an older checkpoint.")
        optimizer.state[parameter] = {
            moment: tensor.to(parameter.device, torch.float32, copy=True)
            for moment, tensor in state.items()
            if tensor is not None
        }


def _trained(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((n, p) for n, p in model.named_parameters() if p.requires_grad)
