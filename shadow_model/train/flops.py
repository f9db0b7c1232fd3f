"""Floating-point operations of training, by formula.

A matrix of n weights costs 6n a token (forward, both gradients); 4n where one gradient is not
computed: `inp` reads the frozen table, the index branch a detached input, the readout a frozen
table. Attention costs 12·d for each key a query sees. Not counted: norms, quantisers, the index
scores, the softmax.

Legend: d width, L executed blocks, T context tokens, V rows scored, n a matrix's weights.
"""

from collections.abc import Iterator

import numpy as np

from shadow_model.nn.config import ModelConfig, num_block_calls
from shadow_model.table.layout import BAND_ROWS, BANDS, KINDS, Layout
from shadow_model.table.store import BITS
from shadow_model.train.config import ArmConfig
from shadow_model.train.schedule import Phase, phase_at


def flops_per_token(
    model: ModelConfig, ctx_tokens: int, loops: int, rows: float, sparse: bool = False
) -> float:
    """Return the operations of training on one token.

    Args:
        model: Of the looped or the flat body.
        ctx_tokens: Context length (T).
        loops: Passes over the core; a flat body ignores it.
        rows: Rows that the readout scores for a token (V), a mean where kinds differ.
        sparse: Whether attention sees only the selected blocks.
    """
    keys = mean_keys(model, ctx_tokens, sparse)
    block = 6 * _block_weights(model) + 4 * _index_weights(model) + 12 * model.width * keys
    return num_block_calls(model, loops) * block + 10 * BITS * model.width + 4 * BITS * rows


def mean_keys(model: ModelConfig, ctx_tokens: int, sparse: bool) -> float:
    """Return how many keys a query sees, over the positions of a window."""
    if not sparse:
        return (ctx_tokens + 1) / 2
    past_blocks, in_block = np.divmod(np.arange(ctx_tokens), model.index_block)
    seen = np.minimum(past_blocks, model.index_top) * model.index_block + in_block + 1
    return float(seen.mean())


def mean_rows(layout: Layout, counts: dict[str, int]) -> float:
    """Return the rows that the split readout scores for a token, over a mixture of kinds.

    Args:
        counts: Kind -> tokens of that kind; without any, all are text.
    """
    shared = layout.num_rows - layout.marks["image"]
    own = [layout.num_lang, *(BAND_ROWS[band] for band in BANDS)]
    weights = np.array([counts.get(kind, 0) for kind in KINDS], np.float64)
    if not weights.sum():
        weights[0] = 1
    return shared + float(weights @ np.array(own) / weights.sum())


def flops_until(arm: ArmConfig, rows: float, steps: int) -> float:
    """Return the operations of an arm's first `steps` updates, growth and lengths included."""
    total = 0.0
    for first, last, phase in phase_spans(arm, steps):
        each = flops_per_token(arm.model, phase.ctx_tokens, phase.loops, rows, phase.sparse)
        total += (last - first) * arm.train.batch_tokens * each
    return total


def phase_spans(arm: ArmConfig, steps: int) -> Iterator[tuple[int, int, Phase]]:
    """Yield (first step, one past the last, phase) of the first `steps` updates."""
    first = 0
    while first < steps:
        phase, low, high = phase_at(arm, first), first, steps
        while high - low > 1:  # bisection: phases only ever advance
            middle = (low + high) // 2
            low, high = (middle, high) if phase_at(arm, middle) == phase else (low, middle)
        yield first, low + 1, phase
        first = low + 1


def _block_weights(model: ModelConfig) -> int:
    attention = 2 * model.width * (model.width + model.kv_heads * model.head_width)
    return attention + 3 * model.width * model.ff_width


def _index_weights(model: ModelConfig) -> int:
    return 2 * model.width * model.index_width
