"""Which kind of token can follow each position.

Inside a picture, sound or clip the next token is a row of that band, a marker or a control; outside
it is a language row, a marker or a control. Inside means: the latest start row is after the latest
end row, or the input is itself a row of the band. Of nested or unclosed starts the latest wins; the
marker that ends a document ends its spans too.

Legend: B batch, T tokens, R table rows.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shadow_model.table.layout import BANDS, KINDS, Layout

_NO_EVENT = -1


class KindRules(NamedTuple):
    """What each row does to the kind of the next token.

    Attributes:
        event: (R,) int8: -1 for none, 0 where a span ends, else the kind that starts.
        band: (R,) int8: the kind of a band row, 0 of every other.
    """

    event: Tensor
    band: Tensor


def kind_rules(layout: Layout) -> KindRules:
    """Return the rules of a layout."""
    event = np.full(layout.num_rows, _NO_EVENT, np.int8)
    for row, band in layout.start_rows.items():
        event[row] = BANDS.index(band) + 1
    event[[*layout.end_rows, layout.marks["sep"]]] = 0
    return KindRules(torch.from_numpy(event), torch.from_numpy(layout.kind_of_rows()))


def kinds_after(ids: Tensor, rules: KindRules, initial: Tensor | None = None) -> Tensor:
    """Return the kind of the token that follows each position.

    Args:
        ids: (B, T) int64 rows.
        rules: Of the table's layout, on the device of the ids.
        initial: (B,) kind of the span that each window begins in, 0 outside; None: outside.

    Returns:
        (B, T) int8 index into KINDS.
    """
    event = rules.event[ids]
    time = torch.arange(ids.shape[1], device=ids.device)
    last = torch.where(event != _NO_EVENT, time, _NO_EVENT).cummax(1).values
    state = event.gather(1, last.clamp_min(0))
    before = torch.zeros_like(state) if initial is None else initial[:, None].to(state.dtype)
    state = torch.where(last >= 0, state, before)
    band = rules.band[ids]
    return torch.where(band > 0, band, state)


def next_kinds(ids: Tensor, layout: Layout, initial: Tensor | None = None) -> Tensor:
    """Return `kinds_after` by the layout: (B, T) int8 index into KINDS."""
    rules = kind_rules(layout)
    on_device = KindRules(rules.event.to(ids.device), rules.band.to(ids.device))
    return kinds_after(ids, on_device, initial)


NUM_KINDS = len(KINDS)
