"""The loop: one row after the other, each from a carry, each within the grammar.

Legend: B sequences side by side, T rows.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from shadow_model.export import Exported
from shadow_model.generate.grammar import Grammar, State
from shadow_model.generate.sampling import Sampling, draw, generators
from shadow_model.nn.carry import empty_carry
from shadow_model.nn.model import Shadow
from shadow_model.nn.readout import Readout
from shadow_model.table.layout import KINDS
from shadow_model.table.store import BITS


class Reader(NamedTuple):
    """A model that reads on from where it is.

    Attributes:
        loops: Passes of the core.
        sparse: Whether queries read only their chosen key blocks.
    """

    model: Shadow
    readout: Readout
    loops: int
    sparse: bool = False


def reader_of(exported: Exported) -> Reader:
    """Return the reader of an exported model."""
    readout = Readout(exported.table)
    return Reader(exported.model, readout, exported.stated.loops, exported.stated.sparse)


class Generated(NamedTuple):
    """What was generated.

    Attributes:
        rows: Of each sequence, without the prompt; a document's last row is its separator, unless
            the rows ran out.
        tokens_per_s: Rows drawn a second, of all sequences together; the time of reading what all
            prompts have is not counted.
    """

    rows: list[list[int]]
    tokens_per_s: float


@torch.no_grad()
def generate(
    reader: Reader,
    grammar: Grammar,
    prompts: Sequence[Sequence[int]],
    max_rows: int | Sequence[int],
    sampling: Sampling,
) -> Generated:
    """Go on from each prompt until its document ends, all side by side.

    The rows that all prompts have are read at once; where a longer one goes on, its rows are read
    while others are already drawn.

    Args:
        reader: The model; it must be in evaluation mode.
        grammar: What may follow.
        prompts: Rows that each sequence begins with, at least one; see `Writer.prompt`.
        max_rows: Most rows to draw, of all or of each; a span that cannot end within them is not
            begun.
        sampling: How rows are drawn; sequence i draws with seed + i.

    Raises:
        DataError: A prompt breaks a span, or begins one that max_rows cannot hold.
    """
    limits = [max_rows] * len(prompts) if isinstance(max_rows, int) else max_rows
    chances = generators(sampling, len(prompts))
    sequences = [
        _Sequence(list(prompt), limit, grammar.after(prompt), chance)
        for prompt, limit, chance in zip(prompts, limits, chances, strict=True)
    ]
    read, device = min(map(len, prompts)), reader.model.codes.device
    carry = empty_carry(len(prompts), reader.loops, device)
    ids = torch.tensor([prompt[:read] for prompt in prompts], device=device)
    started, num_drawn = 0.0, 0
    while not all(sequence.done for sequence in sequences):
        out = reader.model(ids, reader.loops, reader.sparse, carry=carry)
        carry, started = out.carry, started or time.perf_counter()
        drawing = [i for i, one in enumerate(sequences) if one.is_read(read) and not one.done]
        for i in drawing:
            sequences[i].draw(out.hidden[i, -1], reader.readout, grammar, sampling)
        num_drawn += len(drawing)
        read += 1
        ids = torch.tensor([[one.row(read - 1, grammar)] for one in sequences], device=device)
    seconds = max(time.perf_counter() - started, 1e-9)
    rows = [one.rows[len(p) :] for one, p in zip(sequences, prompts, strict=True)]
    return Generated(rows, num_drawn / seconds)


@dataclass
class _Sequence:
    """One sequence under way: its rows, how many it may still draw, where its document stands."""

    rows: list[int]
    remaining: int
    state: State
    chance: torch.Generator
    done: bool = False

    def is_read(self, num_read: int) -> bool:
        """Tell whether all rows were read, so that the next one is to be drawn."""
        return len(self.rows) == num_read

    def row(self, place: int, grammar: Grammar) -> int:
        """Return the row to read next; of an ended sequence, anything."""
        return self.rows[place] if place < len(self.rows) else grammar.separator

    def draw(self, hidden: Tensor, readout: Readout, grammar: Grammar, sampling: Sampling) -> None:
        """Draw the next row from the features of the last."""
        kind, allowed = grammar.choice(self.state, self.remaining)
        logits = row_logits(readout, hidden[None], kind)[0].cpu()
        place, rows = draw(logits, allowed, sampling, self.chance), readout.row_sets[kind]
        row = rows.first + place if place < rows.size else rows.tail + place - rows.size
        self.state = grammar.advance(self.state, row)
        self.rows.append(row)
        self.remaining -= 1
        self.done = row == grammar.separator or not self.remaining


def row_logits(readout: Readout, hidden: Tensor, kind: int) -> Tensor:
    """Return (N, V) logits of features (N, 512) over a kind's rows, filling rows left out."""
    rows = getattr(readout, f"rows_{KINDS[kind]}")
    bias = getattr(readout, f"bias_{KINDS[kind]}")
    row_set = readout.row_sets[kind]
    size = row_set.size + row_set.num_rows - row_set.tail
    scores = torch.addmm(bias, hidden.to(rows.dtype), rows.t(), alpha=BITS**-0.5)
    return scores[:, :size]
