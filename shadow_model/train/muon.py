"""Muon for the matrices of the blocks, AdamW for all else, as one optimiser.

A matrix moves along its momentum with all singular values drawn near 1, scaled so that the step's
root mean square is that of AdamW (0.2): both share the learning rate and the decay. The iteration
runs in bfloat16 on CUDA and in float32 on a CPU, where bfloat16 products are far slower.

Source: Jordan 2024 (kellerjordan.github.io/posts/muon); scale and decay: arXiv 2502.16982.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_STEP_RMS = 0.2
_EPS = 1e-7


class MuonAdamW(torch.optim.AdamW):
    """AdamW whose groups marked `muon` are moved by Muon.

    The state of their parameters is `step` and `exp_avg`, the momentum.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        assert closure is None
        moved = list(self._move_matrices())
        super().step()  # passes over parameters without a gradient
        for parameter, gradient in moved:
            parameter.grad = gradient
        return None

    def _move_matrices(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        for group in self.param_groups:
            for parameter in group["params"] if group.get("muon") else ():
                if parameter.grad is not None:
                    self._move(parameter, group)
                    yield parameter, parameter.grad
                    parameter.grad = None

    def _move(self, parameter: nn.Parameter, group: dict[str, Any]) -> None:
        gradient = parameter.grad
        assert gradient is not None
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
        state["step"] += 1
        momentum = state["exp_avg"].lerp_(gradient, 1 - MOMENTUM)
        direction = orthogonalised(gradient.lerp(momentum, MOMENTUM))
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        scale = _STEP_RMS * max(parameter.shape) ** 0.5
        parameter.add_(direction, alpha=-group["lr"] * scale)


def orthogonalised(matrix: Tensor) -> Tensor:
    """Return the (M, N) matrix with its singular values drawn near 1 (0.7 to 1.2)."""
    a, b, c = _COEFFICIENTS
    dtype = torch.bfloat16 if matrix.is_cuda else torch.float32
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.t() if tall else matrix).to(dtype)
    x = x / (x.norm() + _EPS)
    for _ in range(_ITERATIONS):
        gram = x @ x.t()
        x = a * x + (b * gram + c * gram @ gram) @ x
    found: Tensor = x.t() if tall else x
    return found.to(matrix.dtype)
