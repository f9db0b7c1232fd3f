"""One update: micro-batches forward and backward, clipping, optimiser, new ternary forms.

    loss = cross-entropy over the batch's kept targets + index_weight · index KL

Micro-batches only save memory: the cross-entropy is divided by the kept targets of the whole batch,
and the index KL of each is weighted by its tokens.

Legend: B windows, T tokens a window.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from shadow_model.nn.config import num_block_calls
from shadow_model.nn.index import draw_query_positions
from shadow_model.nn.kinds import KindRules, kinds_after
from shadow_model.nn.model import Shadow
from shadow_model.nn.readout import Loss, Readout
from shadow_model.train.config import TrainConfig
from shadow_model.train.device import Device
from shadow_model.train.interval import StepStats
from shadow_model.train.optim import clip_gradients, set_lr, trained_parameters
from shadow_model.train.rowwise_adam import RowwiseAdam, memory_rows
from shadow_model.train.schedule import Phase, lr_at


class Learner(NamedTuple):
    """What an update changes, and with what.

    Attributes:
        parameters: Those trained by `optimizer`, in the order of their names.
        memory: Of the rows of memories.
    """

    model: Shadow
    readout: Readout
    optimizer: torch.optim.Optimizer
    parameters: list[nn.Parameter]
    config: TrainConfig
    device: Device
    memory: RowwiseAdam

    @property
    def names(self) -> list[str]:
        """Names of what is trained, in the order of an update's gradient norms."""
        return [*(n for n, _ in trained_parameters(self.model)), *memory_rows(self.model)]


class TokenBatch(NamedTuple):
    """Windows of the bin on the model's device.

    Attributes:
        ids: (B, T) int64 inputs.
        targets: (B, T) int64, the row after each.
        initial: (B,) int8 kind of the span that a window begins in, or None: outside.
    """

    ids: Tensor
    targets: Tensor
    initial: Tensor | None


def update(learner: Learner, batch: TokenBatch, phase: Phase, step: int) -> StepStats:
    """Do one update.

    Args:
        step: Updates done before it; it keys the index positions and the learning rate.

    Returns:
        Its figures, on the device; nothing here waits for it.
    """
    learner.optimizer.zero_grad(set_to_none=True)
    learner.memory.zero_grad()
    parts = list(_split(batch, phase.micro_batches))
    kept = count_kept(learner.readout, batch) if len(parts) > 1 else None
    losses, index_kls = [], []
    for number, part in enumerate(parts):
        loss, index_kl = _forward(learner, part, phase, step, number)
        weight = len(part.ids) / len(batch.ids)
        share = 1.0 if kept is None else loss.counts.sum() / kept.clamp_min(1)
        torch.autograd.backward(
            loss.total * share + learner.config.index_weight * weight * index_kl
        )
        losses.append(loss)
        index_kls.append(index_kl.detach() * weight)
    norms = clip_gradients(learner.parameters, learner.config.clip_norm)
    row_norms = learner.memory.clip(learner.config.clip_norm).to(norms)
    flat = bool(learner.model.config.flat)
    lr = lr_at(learner.config, step, flat)
    set_lr(learner.optimizer, lr)
    learner.optimizer.step()
    learner.memory.step(lr * learner.config.engram_lr_factor)
    learner.model.refresh()
    return StepStats(
        sums=torch.stack([loss.sums for loss in losses]).sum(0),
        counts=torch.stack([loss.counts for loss in losses]).sum(0),
        index_kl=torch.stack(index_kls).sum(),
        dropped=torch.stack([loss.dropped for loss in losses]).sum(),
        norms=torch.cat([norms, row_norms]),
    )


def count_kept(readout: Readout, batch: TokenBatch) -> Tensor:
    """Return how many targets lie in their row set: 0-d int64, without any forward."""
    rules = KindRules(readout.get_buffer("event"), readout.get_buffer("band"))
    kinds = kinds_after(batch.ids, rules, batch.initial).long()
    inside = torch.stack([rows.local(batch.targets) >= 0 for rows in readout.row_sets])
    return inside.gather(0, kinds[None]).sum()


def _forward(
    learner: Learner, part: TokenBatch, phase: Phase, step: int, number: int
) -> tuple[Loss, Tensor]:
    model, config = learner.model, learner.model.config
    tokens, positions = part.ids.shape[1], None
    if tokens >= 2 * config.index_block:
        calls = num_block_calls(config, phase.loops)
        positions = draw_query_positions(
            learner.config.seed,
            step,
            calls,
            tokens,
            config.index_block,
            config.num_query_positions,
            number,
        ).to(part.ids.device, non_blocking=True)
    with learner.device.autocast():
        out = model(part.ids, phase.loops, phase.sparse, positions)
        loss = learner.readout.loss(out.hidden, part.ids, part.targets, part.initial)
    if out.index_kl is None:
        return loss, loss.total.new_zeros(())
    kls = out.index_kl
    return loss, kls.sum() if learner.config.index_reduction == "sum" else kls.mean()


def _split(batch: TokenBatch, parts: int) -> list[TokenBatch]:
    ids, targets = batch.ids.tensor_split(parts), batch.targets.tensor_split(parts)
    if batch.initial is None:
        initial: tuple[Tensor | None, ...] = (None,) * parts
    else:
        initial = batch.initial.tensor_split(parts)
    return [TokenBatch(*part) for part in zip(ids, targets, initial, strict=True)]
