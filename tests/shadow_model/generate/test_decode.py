"""Generation from a carry draws what the full forward would, and what it draws is well formed."""

from typing import Any

import pytest
import torch

from shadow_model.errors import DataError
from shadow_model.generate.decode import Reader, generate, row_logits
from shadow_model.generate.grammar import Grammar
from shadow_model.generate.sampling import Sampling, draw, generators
from shadow_model.generate.writer import Writer
from shadow_model.nn.model import Shadow
from shadow_model.nn.readout import Readout

GREEDY, DRAWN = Sampling(temperature=0), Sampling(temperature=1.5, top_k=20, seed=3)


def exact_reader(made: Any) -> Reader:
    """Return a reader in float64 without quantisers: sums of other shapes then agree to 1e-12."""
    model = Shadow(made.model.config.replace(quantise=False), made.table, seed=2).double().eval()
    return Reader(model, Readout(made.table).double(), 2)


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_equals_the_full_forward_token_by_token(made: Any, sampling: Sampling) -> None:
    # dense: drawn rows repeat, and which of two equal blocks is read is a matter of rounding
    reader, writer = exact_reader(made), writer_of(made)
    grammar, most = Grammar(made.table.layout, writer.limits), 40
    prompts = [writer.prompt("the cat"), writer.prompt("a small cat sat", "clip")]
    rows = generate(reader, grammar, prompts, most, sampling).rows
    for prompt, drawn, chance in zip(prompts, rows, generators(sampling, 2), strict=True):
        state = grammar.after(prompt)
        with torch.no_grad():
            whole = reader.model(torch.tensor([[*prompt, *drawn]]), 2).hidden[0]
        for number, row in enumerate(drawn):
            hidden = whole[len(prompt) + number - 1, None]
            kind, allowed = grammar.choice(state, most - number)
            logits = row_logits(reader.readout, hidden, kind)[0]
            place, of_kind = draw(logits, allowed, sampling, chance), reader.readout.row_sets[kind]
            assert int(of_kind.local(torch.tensor(row))) == place
            state = grammar.advance(state, row)


def test_logits_are_the_readouts(made: Any) -> None:
    readout, hidden = Readout(made.table), torch.randn(1, 2, 512)
    start = made.table.layout.marks["audio"]
    ids = torch.tensor([[5, start]])
    target = made.table.layout.offsets["audio"] + 7
    losses, _, _ = readout.token_losses(hidden, ids, torch.tensor([[9, target]]))
    for place, (kind, local) in enumerate(((0, 9), (2, 7))):
        log_share = row_logits(readout, hidden[0, place : place + 1], kind).log_softmax(-1)
        assert float(-log_share[0, local]) == pytest.approx(float(losses[0, place]), abs=1e-4)


def test_wanted_kinds_come_whole_and_equal_seeds_alike(made: Any) -> None:
    writer = writer_of(made)
    grammar = Grammar(made.table.layout, writer.limits)
    reader = Reader(made.model, Readout(made.table), 3)
    prompts = [writer.prompt("the mat", kind) for kind in ("picture", "sound", "clip")]
    first = generate(reader, grammar, prompts, 40, DRAWN)
    assert first.rows == generate(reader, grammar, prompts, 40, DRAWN).rows
    assert first.tokens_per_s > 0
    for prompt, rows, shape in zip(
        prompts, first.rows, ((16, 16, 3), None, (4, 8, 8, 3)), strict=True
    ):
        item = next(p.array for p in writer.parts([*prompt, *rows]) if p.array is not None)
        assert item.ndim == 1 if shape is None else item.shape == shape


def test_a_wish_too_large_for_the_rows_is_refused(made: Any) -> None:
    writer = writer_of(made)
    reader = Reader(made.model, Readout(made.table), 3)
    prompt, grammar = writer.prompt("a cat", "picture"), Grammar(made.table.layout, writer.limits)
    with pytest.raises(DataError, match="leave room for a whole picture"):
        generate(reader, grammar, [prompt], 16, GREEDY)


def writer_of(made: Any) -> Writer:
    """Return the writer of the fixture's parts."""
    return Writer(made.table, made.pieces, made.codecs)
