"""Ternary linear maps: int8 activations times ternary weights, several matrices in one product.

The ternary form of a weight is made once by `refresh`, after each change of the weight, and kept in
buffers that no state dict holds; the forward only reads it, so compiled graphs and recomputation
(activation checkpointing) see what the first forward saw. Backward passes straight through both
quantisers.

Two forms of the same product: with `integer` the operands are whole numbers (±1 times up to ±127:
exact in bf16, and their sums exact in float32), scaled afterwards, and all members share one matrix
product; without it they carry their scales and are multiplied one by one, which rounds as a plain
float layer does.

Legend: N tokens (all leading axes), K inputs, M outputs of all members together.

Source: BitNet b1.58 (arXiv 2402.17764, section 2).
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Never

import torch
from torch import Tensor, nn

from shadow_model.errors import NumericsError
from shadow_model.nn.kernels import Int8Product, int8_product
from shadow_model.nn.quant import int8_parts, ternary_parts

_FEW = 1 << 16
"""Outputs so few that calls cost more than arithmetic: those of a token."""


class TernaryWeight(nn.Module):
    """A float weight (out, in) that is used in ternary form."""

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_out, num_in))

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weight as nn.Linear does: uniform within ±1/√in."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        self.weight.uniform_(-bound, bound, generator=generator)


class _Plan(NamedTuple):
    """What of a product is fixed: its members' rows, padding and which of them let x learn."""

    rows: tuple[int, ...]
    padded_rows: tuple[int, ...]
    num_in: int
    attached: int
    integer: bool


class SharedInput(nn.Module):
    """Several ternary weights that read one input, as one quantisation and one product.

    Args:
        members: The weights, in the order of their outputs; they stay owned by the caller.
        integer: Whether the product's operands are whole numbers.
        quantise: False multiplies by the float weights.
        detached: How many of the last members pass no gradient to the input.
        pad: Each member's outputs are filled with zeros to a multiple of this.
        pad_in: The input is filled with zeros to a multiple of this by the caller.
    """

    matrix: Tensor
    row_scale: Tensor

    def __init__(
        self,
        members: Sequence[TernaryWeight],
        *,
        integer: bool = True,
        quantise: bool = True,
        detached: int = 0,
        pad: int = 1,
        pad_in: int = 1,
    ) -> None:
        super().__init__()
        self._members = tuple(members)  # a tuple: not registered, so no second name in state dicts
        self._quantise = quantise
        rows = tuple(m.weight.shape[0] for m in members)
        num_in = members[0].weight.shape[1]
        padded = tuple(_round_up(r, pad if quantise else 1) for r in rows)
        attached = sum(padded[: len(padded) - detached])
        self._plan = _Plan(rows, padded, num_in, attached, integer)
        self._versions: tuple[int, ...] = ()
        self._fixed = False
        self._int8: Int8Product | None = None
        width = _round_up(num_in, pad_in)
        shape = (sum(padded), width) if quantise else (0, width)
        self.register_buffer("matrix", torch.zeros(shape), persistent=False)
        self.register_buffer("row_scale", torch.zeros(shape[0]), persistent=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Outputs of each member, padding included."""
        return self._plan.padded_rows

    @property
    def members(self) -> tuple[TernaryWeight, ...]:
        """The weights, in the order of their outputs."""
        return self._members

    @torch.no_grad()
    def form(self, place: int) -> tuple[Tensor, Tensor]:
        """Return a member's signs (out, in) and its 0-d scale, as they are multiplied now."""
        plan = self._plan
        first, rows = sum(plan.padded_rows[:place]), plan.rows[place]
        scale = self.row_scale[first]
        values = self.matrix[first : first + rows, : plan.num_in]
        return (values if plan.integer else values.sign()), scale

    @torch.no_grad()
    def refresh(self) -> None:
        """Make the ternary form of the weights anew, unless they were fixed."""
        if not self._quantise or self._fixed:
            return
        self._set([ternary_parts(member.weight) for member in self._members])

    @torch.no_grad()
    def fix(self, forms: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Take ternary forms as they are, and let go of the float weights: nothing learns more.

        Args:
            forms: Of each member, signs (out, in) in {-1, 0, 1} and the 0-d scale.
        """
        assert self._quantise, "only quantised products have a ternary form"
        self._fixed = True
        for member in self._members:
            empty = torch.empty(0, dtype=member.weight.dtype, device=member.weight.device)
            member.weight = nn.Parameter(empty, requires_grad=False)
        self._set(forms)

    def _set(self, forms: Sequence[tuple[Tensor, Tensor]]) -> None:
        first, plan = 0, self._plan
        for (signs, scale), rows, padded in zip(forms, plan.rows, plan.padded_rows, strict=True):
            form = signs if plan.integer else signs * scale
            self.matrix[first : first + rows, : plan.num_in] = form
            self.row_scale[first : first + padded] = scale
            first += padded
        self._versions = tuple(m.weight._version for m in self._members)
        if self._int8 is not None:
            self.use_int8(True)

    def use_int8(self, use: bool) -> None:
        """Multiply in int8 from now on where nothing learns, or no longer; see `kernels`.

        It gives the same bits. Products of float operands stay as they are.
        """
        usable = use and self._quantise and self._plan.integer
        self._int8 = int8_product(self.matrix) if usable and int8_product else None

    def forward(self, x: Tensor, attached_only: bool = False) -> Tensor:
        """Multiply.

        Args:
            x: (..., K) floating.
            attached_only: Leave out the detached members.

        Returns:
            (..., M), in x's dtype or autocast's.

        Raises:
            NumericsError: A weight changed after the last `refresh` (found in eager mode only, and
                not after a fused optimiser, which does not count its changes: the model looks for
                those).
        """
        weights = [m.weight for m in self._members]
        if not self._quantise:
            return self._float_product(x, weights, attached_only)
        if not torch.compiler.is_compiling():
            self._check_fresh()
        if self._int8 is not None and not torch.is_grad_enabled() and x.is_cpu:
            return self._int8_form(x, self._int8, attached_only)
        plan, matrix, scale = self._plan, self.matrix, self.row_scale
        if attached_only and plan.attached < sum(plan.padded_rows):
            plan = _keep_attached(plan)
            weights = weights[: len(plan.rows)]
            matrix, scale = matrix[: plan.attached], scale[: plan.attached]
        if not torch.is_grad_enabled() and plan.integer:
            dtype, (levels, x_scale) = _product_dtype(x), int8_parts(x)
            return _integer_product(levels.to(dtype), x_scale, matrix.to(dtype), scale, plan)
        out: Tensor = _TernaryProduct.apply(x, matrix, scale, plan, *weights)
        return out

    def _int8_form(self, x: Tensor, product: Int8Product, attached_only: bool) -> Tensor:
        levels, scale = int8_parts(x)
        y = _scaled(product(levels).to(scale.dtype), scale, self.row_scale, self._plan)
        y = y.to(_product_dtype(x))
        return y[..., : self._plan.attached] if attached_only else y

    def _float_product(self, x: Tensor, weights: Sequence[Tensor], attached_only: bool) -> Tensor:
        rows, last, outs = 0, self._plan.attached, []
        for weight in weights:
            if rows < last or not attached_only:
                source = x if rows < last else x.detach()
                outs.append(torch.nn.functional.linear(source, weight))
            rows += len(weight)
        return torch.cat(outs, -1) if len(outs) > 1 else outs[0]

    def _check_fresh(self) -> None:
        if self._versions != tuple(m.weight._version for m in self._members):
            refuse_stale()


class TernaryLinear(TernaryWeight):
    """One ternary weight with its own product: y = int8(x) · ternary(W)ᵀ, no bias."""

    def __init__(
        self,
        num_in: int,
        num_out: int,
        *,
        integer: bool = True,
        quantise: bool = True,
        pad_in: int = 1,
    ) -> None:
        super().__init__(num_in, num_out)
        self.product = SharedInput(
            (self,), integer=integer, quantise=quantise, pad_in=pad_in if quantise else 1
        )

    def refresh(self) -> None:
        """Make the ternary form of the weight anew."""
        self.product.refresh()

    def forward(self, x: Tensor) -> Tensor:
        """Multiply: (..., in) -> (..., out)."""
        out: Tensor = self.product(x)
        return out


def refuse_stale() -> Never:
    """Raise the NumericsError of a ternary form older than its weight."""
    raise NumericsError(
        "ternary weights",
        "be of the float weights as they are",
        "a weight that changed after its ternary form was made",
        "Call refresh() on the model after every change of its weights.",
    )


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _keep_attached(plan: _Plan) -> _Plan:
    total, keep = 0, 0
    while total < plan.attached:
        total += plan.padded_rows[keep]
        keep += 1
    return plan._replace(rows=plan.rows[:keep], padded_rows=plan.padded_rows[:keep])


def _product_dtype(x: Tensor) -> torch.dtype:
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


class _TernaryProduct(torch.autograd.Function):
    """Saves the activations as int8: a quarter of the memory, and no second rounding."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        matrix: Tensor,
        row_scale: Tensor,
        plan: _Plan,
        *weights: Tensor,  # noqa: ARG004
    ) -> Tensor:
        dtype = _product_dtype(x)
        levels, scale = int8_parts(x)
        ctx.save_for_backward(levels.to(torch.int8), scale, matrix, row_scale)
        ctx.plan, ctx.dtype, ctx.x_dtype = plan, dtype, x.dtype
        if plan.integer:
            return _integer_product(levels.to(dtype), scale, matrix.to(dtype), row_scale, plan)
        operand = levels.mul_(scale).to(dtype)
        # a product each: one over all members would sum in another order, and k and v round next
        members = matrix.to(dtype).split(plan.padded_rows)
        return torch.cat([torch.matmul(operand, member.t()) for member in members], -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        levels, scale, matrix, row_scale = ctx.saved_tensors
        plan, dtype = ctx.plan, ctx.dtype
        grad = grad.to(dtype)
        grad_x = None
        if ctx.needs_input_grad[0]:
            into = grad[..., : plan.attached]
            if plan.integer:
                into = into * row_scale[: plan.attached].to(dtype)
            grad_x = torch.matmul(into, matrix[: plan.attached].to(dtype)).to(ctx.x_dtype)
        grads: list[Tensor | None] = [None] * len(plan.rows)
        if any(ctx.needs_input_grad[4:]):
            x = levels.to(scale.dtype).mul_(scale).to(dtype).flatten(0, -2)
            full = torch.mm(grad.flatten(0, -2).t(), x)
            grads = list(_member_grads(full, plan))
        return (grad_x, None, None, None, *grads)


def _integer_product(
    levels: Tensor, scale: Tensor, signs: Tensor, row_scale: Tensor, plan: _Plan
) -> Tensor:
    return _scaled(torch.matmul(levels, signs.t()), scale, row_scale, plan)


def _scaled(y: Tensor, scale: Tensor, row_scale: Tensor, plan: _Plan) -> Tensor:
    if y.numel() <= _FEW:  # the same products, in one call
        return y.mul_(scale * row_scale)
    first = 0
    for part in y.split(plan.padded_rows, -1):
        part.mul_(scale * row_scale[first])
        first += part.shape[-1]
    return y


def _member_grads(full: Tensor, plan: _Plan) -> list[Tensor]:
    grads, first = [], 0
    for rows, padded in zip(plan.rows, plan.padded_rows, strict=True):
        grads.append(full[first : first + rows, : plan.num_in])
        first += padded
    return grads
