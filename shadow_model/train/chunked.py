"""Training on rows longer than memory: chunk by chunk, with a carried state.

A chunk is recomputed in its backward, so that only one chunk's activations live at a time; what
flows backwards through the carry is a policy:

    "never"   full backpropagation through time: one backward at the end of the row
    "every"   the carry is cut after each chunk: its backward comes at once
    n         cut after each n chunks

Losses come as sums and weights. Where a loss's weight for the whole row is known beforehand (valid
targets, say) each backward divides by it, so that gradients add up to the row's mean.

Source: truncated backpropagation through time (Williams & Peng 1990); checkpointing (arXiv
1604.06174).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from shadow_model.nn.chunking import ChunkIn, ChunkModel, ChunkOut, Term
from shadow_model.nn.tree import detach

DetachPolicy = Literal["never", "every"] | int


class RowResult(NamedTuple):
    """What a row gave.

    Attributes:
        terms: Name -> sums over its chunks, detached.
        carry: The state after it, detached.
        stats: Name -> the last chunk's figures.
        outs: (B, T, D) features, detached, of the whole row; None where they were not kept.
    """

    terms: dict[str, Term]
    carry: Any
    stats: dict[str, Any]
    outs: Tensor | None


def split(x: ChunkIn, size: int) -> Iterator[ChunkIn]:
    """Yield a row's chunks of at most `size` tokens, in order.

    Raises:
        ValueError: `size` is below 1.
    """
    if size < 1:
        raise ValueError(f"a chunk must hold at least 1 token, found {size}")
    for begin in range(0, x.ids.shape[1], size):
        part = slice(begin, begin + size)
        yield ChunkIn(*(None if t is None else t[:, part] for t in x))  # type: ignore[arg-type]


def checkpointed_chunk(
    model: ChunkModel, x: ChunkIn, carry: Any = None, *, enabled: bool = True
) -> ChunkOut:
    """Work through one chunk; in the backward it is worked through again.

    The model must be a pure function of its arguments: the second pass may stop early, and what it
    wrote aside would stand there twice or be torn off from the graph.
    """
    if not enabled or not torch.is_grad_enabled():
        return model.chunk(x, carry)
    out: ChunkOut = checkpoint(model.chunk, x, carry, use_reentrant=False)
    return out


def train_row(
    model: ChunkModel,
    x: ChunkIn,
    *,
    size: int,
    loss_weights: Mapping[str, float],
    detach_policy: DetachPolicy = "every",
    checkpointed: bool = True,
    row_weights: Mapping[str, float] | None = None,
    carry: Any = None,
    keep_outs: bool = False,
) -> RowResult:
    """Work through a row and add its gradients to the parameters.

    Args:
        size: Tokens a chunk; the last may hold fewer.
        loss_weights: Name of a term -> its weight in the loss; others are only summed.
        row_weights: Name of a term -> its weight over the whole row, known beforehand. A term
            without is divided by the weights of the chunks that one backward covers.
        carry: State before the row; None: a fresh start.

    Returns:
        The sums; divide `total` by `weight` once, over all rows.

    Raises:
        ValueError: The policy is no policy, or a chunk would be empty.
    """
    every = _chunks_a_backward(detach_policy)
    waiting: list[dict[str, Term]] = []
    all_terms, outs, stats = list[dict[str, Term]](), list[Tensor](), dict[str, Any]()
    chunks = list(split(x, size))
    for number, chunk in enumerate(chunks, 1):
        found = checkpointed_chunk(model, chunk, carry, enabled=checkpointed)
        carry, stats = found.carry, found.stats
        waiting.append(found.terms)
        all_terms.append({name: _detached(term) for name, term in found.terms.items()})
        outs += [found.out.detach()] if keep_outs else []
        if number == len(chunks) or (every and number % every == 0):
            _backward(waiting, loss_weights, row_weights or {})
            waiting, carry = [], detach(carry)
    return RowResult(sum_terms(all_terms), carry, stats, torch.cat(outs, 1) if outs else None)


def sum_terms(parts: list[dict[str, Term]]) -> dict[str, Term]:
    """Add the terms of chunks, or of rows, by name."""
    names = dict.fromkeys(name for part in parts for name in part)
    found = {name: [part[name] for part in parts if name in part] for name in names}
    return {
        name: Term(sum_of([t.total for t in terms]), sum_of([t.weight for t in terms]))
        for name, terms in found.items()
    }


def sum_of(values: list[Tensor]) -> Tensor:
    """Add tensors of one shape."""
    return torch.stack(values).sum(0)


def _backward(
    parts: list[dict[str, Term]], loss_weights: Mapping[str, float], row: Mapping[str, float]
) -> None:
    losses = [
        loss_weights[name] * term.total / _denominator(term, row.get(name))
        for name, term in sum_terms(parts).items()
        if name in loss_weights
    ]
    if losses and sum_of(losses).requires_grad:
        sum_of(losses).backward()  # type: ignore[no-untyped-call]


def _denominator(term: Term, row_weight: float | None) -> Tensor | float:
    if row_weight is not None:
        return row_weight or 1.0
    return torch.where(term.weight == 0, 1.0, term.weight)


def _detached(term: Term) -> Term:
    return Term(term.total.detach(), term.weight.detach())


def _chunks_a_backward(policy: DetachPolicy) -> int:
    """Return after how many chunks the carry is cut; 0: never."""
    if policy == "never":
        return 0
    if policy == "every":
        return 1
    if isinstance(policy, bool) or not isinstance(policy, int) or policy < 1:
        raise ValueError(f"detach_policy must be 'never', 'every' or 1 or more, found {policy!r}")
    return policy
