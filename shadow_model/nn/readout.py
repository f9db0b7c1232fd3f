"""The split readout: features against the rows that can follow, and the loss over them.

    logit of row r = z · code(r) · 512^-½ + bias(r), over one row set for each kind of next token

A row set (a band, or the language rows; then markers and controls) is one contiguous buffer, filled
with rows that no target names and no probability reaches up to a width that matrix products like:
the product over 16,396 rows takes half as long again as over 16,400. The table is frozen: no
gradient of it is ever computed.

Legend: B batch, T tokens, N positions of one kind, V rows of a set.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from shadow_model.errors import DataError
from shadow_model.nn.cross_entropy import frozen_cross_entropy
from shadow_model.nn.kinds import NUM_KINDS, KindRules, kind_rules, kinds_after
from shadow_model.table.layout import BAND_ROWS, BANDS, KINDS, Kind, Layout
from shadow_model.table.store import BITS, Table

_ALIGNMENT = 16
_NEVER = -1e9
"""Bias of a filling row: exp of it is 0 in every dtype."""


class Loss(NamedTuple):
    """A batch's loss, all on the device of the features.

    Attributes:
        total: 0-d float32, nats a kept target.
        sums: (4,) float32, summed nats of each kind, detached.
        counts: (4,) int64, kept targets of each kind.
        dropped: 0-d int64, targets outside their row set; they count nowhere.
    """

    total: Tensor
    sums: Tensor
    counts: Tensor
    dropped: Tensor

    @property
    def by_kind(self) -> dict[Kind, tuple[Tensor, Tensor]]:
        """Summed nats and kept targets of each kind."""
        return {kind: (self.sums[i], self.counts[i]) for i, kind in enumerate(KINDS)}


class RowSet(NamedTuple):
    """The rows that can follow in one kind: a run of rows, then the table's last ones."""

    first: int
    size: int
    tail: int
    num_rows: int

    def local(self, rows: Tensor) -> Tensor:
        """Return each row's place in the set, -1 outside."""
        place = torch.where(rows >= self.tail, rows - self.tail + self.size, rows - self.first)
        inside = (rows >= self.tail) | ((rows >= self.first) & (rows < self.first + self.size))
        return torch.where(inside & (rows < self.num_rows), place, -1)


def row_sets(layout: Layout) -> tuple[RowSet, ...]:
    """Return the row set of each kind, in the order of KINDS."""
    tail, num_rows = layout.marks[BANDS[0]], layout.num_rows
    bands = [RowSet(layout.offsets[b], BAND_ROWS[b], tail, num_rows) for b in BANDS]
    return (RowSet(0, layout.num_lang, tail, num_rows), *bands)


class Readout(nn.Module):
    """The readout over a frozen table.

    Args:
        table: The table.
        strict: Whether a target outside its row set is an error (it costs a device sync).
    """

    event: Tensor
    band: Tensor

    def __init__(self, table: Table, strict: bool = False) -> None:
        super().__init__()
        self.row_sets = row_sets(table.layout)
        self.strict = strict
        signs, bias = torch.from_numpy(table.signs()), torch.from_numpy(table.bias)
        for kind, rows in zip(KINDS, self.row_sets, strict=True):
            body = slice(rows.first, rows.first + rows.size)
            kind_signs = _filled(torch.cat([signs[body], signs[rows.tail :]]), 0.0)
            kind_bias = _filled(torch.cat([bias[body], bias[rows.tail :]]), _NEVER)
            self.register_buffer(f"rows_{kind}", kind_signs, persistent=False)
            self.register_buffer(f"bias_{kind}", kind_bias, persistent=False)
        rules = kind_rules(table.layout)
        self.register_buffer("event", rules.event, persistent=False)
        self.register_buffer("band", rules.band, persistent=False)

    def loss(
        self, hidden: Tensor, ids: Tensor, targets: Tensor, initial: Tensor | None = None
    ) -> Loss:
        """Return the mean cross-entropy over kept targets.

        Args:
            hidden: (B, T, 512) features.
            ids: (B, T) int64 input rows; they tell the kind that follows.
            targets: (B, T) int64 rows that do follow.
            initial: (B,) kind of the span that each window begins in; None: outside.

        Returns:
            The loss, with sums and counts of each kind.

        Raises:
            DataError: In strict mode, a target is outside its row set.
        """
        losses, kinds, kept = self._token_losses(hidden, ids, targets, initial)
        one_hot = torch.nn.functional.one_hot(kinds.long(), NUM_KINDS) * kept[..., None]
        counts = one_hot.flatten(0, -2).sum(0)
        sums = losses.detach().flatten() @ one_hot.flatten(0, -2).to(losses.dtype)
        total = losses.sum() / counts.sum().clamp_min(1)
        return Loss(total, sums, counts, (~kept).sum())

    @torch.no_grad()
    def token_losses(
        self, hidden: Tensor, ids: Tensor, targets: Tensor, initial: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return each target's loss, for held-out statistics.

        Returns:
            Nats (B, T) float32 (0 where dropped), kinds (B, T) int8, kept (B, T) bool.
        """
        return self._token_losses(hidden, ids, targets, initial)

    def _token_losses(
        self, hidden: Tensor, ids: Tensor, targets: Tensor, initial: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        kinds = kinds_after(ids, KindRules(self.event, self.band), initial)
        flat_kinds, flat_targets = kinds.flatten(), targets.flatten()
        features = hidden.flatten(0, 1)
        losses = features.new_zeros(len(flat_kinds), dtype=torch.float32)
        kept = torch.zeros_like(flat_kinds, dtype=torch.bool)
        for index, (kind, rows) in enumerate(zip(KINDS, self.row_sets, strict=True)):
            local = rows.local(flat_targets)
            here = ((flat_kinds == index) & (local >= 0)).nonzero()[:, 0]
            if len(here):
                some = frozen_cross_entropy(
                    features[here],
                    getattr(self, f"rows_{kind}"),
                    getattr(self, f"bias_{kind}"),
                    local[here],
                    BITS**-0.5,
                )
                losses = losses.index_copy(0, here, some)
                kept = kept.index_fill(0, here, True)
        if self.strict and not kept.all():
            _refuse_dropped(flat_kinds, flat_targets, kept)
        return losses.view(ids.shape), kinds, kept.view(ids.shape)


def _filled(rows: Tensor, value: float) -> Tensor:
    missing = -len(rows) % _ALIGNMENT
    return torch.cat([rows, rows.new_full((missing, *rows.shape[1:]), value)])


def _refuse_dropped(kinds: Tensor, targets: Tensor, kept: Tensor) -> None:
    where = int((~kept).nonzero()[0, 0])
    kind = KINDS[int(kinds[where])]
    raise DataError(
        f"target {where} of the batch",
        f"be a row that can follow in a {kind}",
        f"row {int(targets[where])} ({int((~kept).sum())} such targets)",
        "Pack the bins again from well-formed documents, or leave strict mode.",
    )
