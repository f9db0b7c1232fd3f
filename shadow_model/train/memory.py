"""What to change in a config whose training ran out of memory."""

from shadow_model.train.config import ArmConfig
from shadow_model.train.schedule import phase_at


def memory_advice(arm: ArmConfig, step: int) -> str:
    """Name the field that makes the micro-batches of an update smaller, and its next value.

    Args:
        step: Updates done before the one that failed.
    """
    train = arm.train
    phase, first = phase_at(arm, step), phase_at(arm, 0)
    large = phase.ctx_tokens > first.ctx_tokens or phase.loops > first.loops
    field = "micro_batches_large" if large else "micro_batches"
    longest = max(stage.ctx_tokens for stage in train.lengths)
    smaller = [n for n in (2 * phase.micro_batches,) if n <= train.batch_tokens // longest]
    if smaller:
        return f"set train.{field} to {smaller[0]} (it is {phase.micro_batches}): smaller parts"
    return (
        f"lower the longest train.lengths.ctx_tokens ({longest}) or the model: train.{field} "
        f"is {phase.micro_batches} and cannot be doubled with batch_tokens {train.batch_tokens}"
    )
