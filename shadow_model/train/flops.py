"""Floating-point operations of training, by formula.

A matrix of n weights costs 6n a token (forward, both gradients); 4n where one gradient is not
computed: `inp` reads the frozen table, the index branch a detached input, the readout a frozen
table. Attention costs 12·d for each key a query sees, the scores that select 2·I for each key
before its block (no gradient flows through them), and the index loss, at S positions of a window,
2·d for each key of its teacher and 6·I for each of its student. A memory of n-grams costs its two
projections, its gate and the taps of its convolution, 6 each. Not counted: norms, quantisers,
softmaxes, hashing, the optimiser.

Legend: d width, I index width, L executed blocks, T context tokens, V rows scored, n a matrix's
weights, S query positions.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from shadow_model.nn.config import ModelConfig, num_block_calls
from shadow_model.nn.engram import NUM_TAPS
from shadow_model.table.layout import BAND_ROWS, BANDS, KINDS, Layout
from shadow_model.table.store import BITS
from shadow_model.train.config import ArmConfig
from shadow_model.train.schedule import Phase, phase_at

_MATCHING_ROUNDS = 4


class TokenFlops(NamedTuple):
    """Operations of training on one token, by what they are for.

    Attributes:
        blocks: The matrices of the executed blocks, the index branch's included.
        attention: Scores and mixing of the keys that a query sees.
        ends: Into and out of the body.
        readout: Scores of the rows, and the gradient of the features.
        selection: Scores that select key blocks, where attention is sparse.
        index_loss: Scores of the index branch's loss and of its teacher.
        memories: Projections, gates and convolutions of the memories of n-grams.
    """

    blocks: float
    attention: float
    ends: float
    readout: float
    selection: float
    index_loss: float
    memories: float = 0.0

    @property
    def total(self) -> float:
        """All but `index_loss`, as the published formula: what runs are compared by.

        The index loss serves sparse attention, which both arms have, at 0.2 % of the rest.
        """
        ends = self.ends + self.readout
        return self.blocks + self.attention + ends + self.selection + self.memories


def token_flops(
    model: ModelConfig, ctx_tokens: int, loops: int, rows: float, sparse: bool = False
) -> TokenFlops:
    """Return the operations of training on one token.

    Args:
        model: Of the looped or the flat body.
        ctx_tokens: Context length (T).
        loops: Passes over the core; a flat body ignores it.
        rows: Rows that the readout scores for a token (V), a mean where kinds differ.
        sparse: Whether attention sees only the selected blocks.
    """
    calls = num_block_calls(model, loops)
    return TokenFlops(
        blocks=calls * (6 * _block_weights(model) + 4 * _index_weights(model)),
        attention=calls * 12 * model.width * mean_keys(model, ctx_tokens, sparse),
        ends=10 * BITS * model.width,
        readout=4 * BITS * rows,
        selection=calls * 2 * model.index_width * _scored_keys(model, ctx_tokens, sparse),
        index_loss=calls * _index_loss(model, ctx_tokens),
        memories=model.num_memories * 6 * model.width * (2 * model.engram_width + NUM_TAPS + 1),
    )


def flops_per_token(
    model: ModelConfig, ctx_tokens: int, loops: int, rows: float, sparse: bool = False
) -> float:
    """Return the total of `token_flops`."""
    return token_flops(model, ctx_tokens, loops, rows, sparse).total


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


def match_flops(arm: ArmConfig, like: ArmConfig, rows: float) -> ArmConfig:
    """Return an arm trained for as many operations as another one, to half an update of its own.

    It may read the data as much more often than `arm.train.max_epochs` as it reads more tokens.

    Args:
        arm: Its tokens are changed, and its schedule with them.
        like: The other one.
        rows: Rows that the readout scores for a token of the data.
    """
    wanted, train = flops_until(like, rows, like.train.num_steps), arm.train
    steps = train.num_steps
    for _ in range(_MATCHING_ROUNDS):  # phases are shares of the steps: nearly proportional
        found = arm.replace(train=train.replace(tokens=steps * train.batch_tokens))
        steps = max(1, round(steps * wanted / flops_until(found, rows, steps)))
    tokens = steps * train.batch_tokens
    epochs = train.max_epochs * max(1.0, tokens / like.train.tokens)
    return arm.replace(train=train.replace(tokens=tokens, max_epochs=epochs))


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


def _scored_keys(model: ModelConfig, ctx_tokens: int, sparse: bool) -> float:
    """Return how many keys a query is scored against to select blocks, over a window's positions.

    None where all past blocks are read anyway.
    """
    own = np.arange(ctx_tokens) // model.index_block
    return float(np.where(own > model.index_top, own * model.index_block, 0).mean()) * sparse


def _index_loss(model: ModelConfig, ctx_tokens: int) -> float:
    if ctx_tokens < 2 * model.index_block:
        return 0.0
    return model.num_query_positions * (2 * model.width + 6 * model.index_width)
