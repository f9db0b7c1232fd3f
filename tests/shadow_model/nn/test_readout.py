"""The split readout: sets, counts, dropped targets."""

import pytest
import torch
from torch import Tensor

from shadow_model.errors import DataError
from shadow_model.nn.kinds import next_kinds
from shadow_model.nn.readout import Readout, row_sets
from shadow_model.table.layout import BAND_ROWS, KINDS
from shadow_model.table.synthetic import synthetic_spans, synthetic_table

TABLE = synthetic_table(64, 13)
LAYOUT = TABLE.layout
READOUT = Readout(TABLE)
STRICT = Readout(TABLE, strict=True)


def batch(tokens: int = 256) -> tuple[Tensor, Tensor, Tensor]:
    spans = torch.from_numpy(synthetic_spans(LAYOUT, 2, tokens, 14))
    hidden = torch.randn(2, tokens, 512, generator=torch.Generator().manual_seed(15))
    return hidden, spans[:, :-1], spans[:, 1:]


def plain_losses(hidden: Tensor, ids: Tensor, targets: Tensor) -> Tensor:
    """Every target against the logits of all rows, those outside its set at minus infinity."""
    signs, bias = torch.from_numpy(TABLE.signs()), torch.from_numpy(TABLE.bias)
    logits = hidden @ signs.t() * 512**-0.5 + bias
    allowed = torch.zeros(len(KINDS), LAYOUT.num_rows, dtype=torch.bool)
    for kind, rows in enumerate(row_sets(LAYOUT)):
        allowed[kind, rows.first : rows.first + rows.size] = True
        allowed[kind, rows.tail :] = True
    logits = logits.masked_fill(~allowed[next_kinds(ids, LAYOUT).long()], -torch.inf)
    flat = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), reduction="none"
    )
    return flat.view(ids.shape)


def test_loss_equals_the_plain_form() -> None:
    results = []
    for fused in (True, False):
        hidden, ids, targets = batch()
        hidden.requires_grad_()
        if fused:
            total = STRICT.loss(hidden, ids, targets).total
        else:
            total = plain_losses(hidden, ids, targets).mean()
        total.backward()
        results.append((total.detach(), hidden.grad))
    # 1e-5 and 1e-8: float32 sums over up to 16,396 rows in another order; a gradient is ~1e-4
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-5, atol=0)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-3, atol=1e-8)


def test_kinds_add_up_and_tokens_agree() -> None:
    hidden, ids, targets = batch()
    loss = READOUT.loss(hidden, ids, targets)
    losses, kinds, kept = READOUT.token_losses(hidden, ids, targets)
    assert kept.all()
    assert int(loss.counts.sum()) == ids.numel()
    assert (loss.counts > 0).all()
    for i, kind in enumerate(KINDS):
        nats, count = loss.by_kind[kind]
        assert int(count) == int((kinds == i).sum())
        # 1e-4: float32 sums of a few thousand nats
        torch.testing.assert_close(nats, losses[kinds == i].sum(), rtol=1e-4, atol=0)
    torch.testing.assert_close(loss.total, losses.mean(), rtol=1e-5, atol=0)


def test_dropped_targets_are_counted_and_count_nowhere_else() -> None:
    hidden, ids, targets = batch()
    kinds = next_kinds(ids, LAYOUT)
    where = (kinds == 0).nonzero()[7]
    broken = targets.clone()
    broken[where[0], where[1]] = LAYOUT.offsets["image"] + 5  # a picture row after text
    loss = READOUT.loss(hidden, ids, broken)
    kept = torch.ones_like(ids, dtype=torch.bool)
    kept[where[0], where[1]] = False
    assert int(loss.dropped) == 1
    assert int(loss.counts.sum()) == ids.numel() - 1
    expected = plain_losses(hidden, ids, targets)[kept].mean()
    torch.testing.assert_close(loss.total, expected, rtol=1e-5, atol=0)  # as above
    with pytest.raises(DataError, match=r"can follow in a text; found row 69 \(1 such"):
        STRICT.loss(hidden, ids, broken)


def test_batch_of_nothing_kept_is_zero_and_learns_nothing() -> None:
    hidden = torch.randn(1, 3, 512, requires_grad=True)
    loss = READOUT.loss(hidden, torch.zeros(1, 3, dtype=torch.int64), torch.full((1, 3), 70))
    assert float(loss.total) == 0
    assert int(loss.dropped) == 3


def test_row_sets_hold_their_band_and_the_common_rows() -> None:
    common = 4 + len(LAYOUT.controls)
    sizes = [64, *BAND_ROWS.values()]
    for kind, rows, size in zip(KINDS, row_sets(LAYOUT), sizes, strict=True):
        codes, bias = getattr(READOUT, f"rows_{kind}"), getattr(READOUT, f"bias_{kind}")
        places = rows.local(torch.arange(LAYOUT.num_rows))
        kept = (places >= 0).nonzero()[:, 0]
        assert torch.equal(places[kept], torch.arange(size + common))
        assert torch.equal(codes[: size + common], torch.from_numpy(TABLE.signs())[kept])
        assert len(codes) % 16 == 0
        assert (bias[size + common :] < -1e8).all()


def test_window_inside_a_span_takes_its_state() -> None:
    ids, targets = torch.tensor([[1, 1]]), torch.tensor([[LAYOUT.offsets["image"]] * 2])
    hidden = torch.zeros(1, 2, 512)
    assert int(READOUT.loss(hidden, ids, targets).dropped) == 2
    inside = READOUT.loss(hidden, ids, targets, initial=torch.tensor([1]))
    assert int(inside.dropped) == 0
    assert inside.counts.tolist() == [0, 2, 0, 0]


def test_readout_has_no_state_and_learns_nothing() -> None:
    assert not READOUT.state_dict()
    assert not list(READOUT.parameters())
