"""Windows of a bin as batches on the model's device.

A window that begins inside a span needs to know it only where its first row does not tell: band
rows tell their kind, and rows that open or close a span begin a new state. What is left are other
markers and controls inside a span; there the rows before the window are looked at.

Legend: B windows, N tokens of a bin.
"""

import numpy as np
import torch

from shadow_model.data.bins import Bin
from shadow_model.data.windows import Batch
from shadow_model.nn.kinds import kind_rules
from shadow_model.table.layout import Layout
from shadow_model.train.step import TokenBatch

_NO_EVENT = -1


class Feed:
    """Brings windows of one bin to a device.

    Args:
        stream: The bin that the windows were read from.
        layout: Of the table that its ids name.
        device: Where batches go.
    """

    def __init__(self, stream: Bin, layout: Layout, device: torch.device) -> None:
        self._bin, self._device = stream, device
        rules = kind_rules(layout)
        self._event, self._band = rules.event.numpy(), rules.band.numpy()
        self._num_lang = layout.num_lang

    def load(self, batch: Batch) -> TokenBatch:
        """Return a batch on the device."""
        kinds = np.array([self.initial_kind(int(start)) for start in batch.starts], np.int8)
        ids, targets, initial = (
            torch.from_numpy(np.ascontiguousarray(a)) for a in (batch.ids, batch.targets, kinds)
        )
        if self._device.type == "cuda":
            ids, targets, initial = (t.pin_memory() for t in (ids, targets, initial))
        return TokenBatch(*(t.to(self._device, non_blocking=True) for t in (ids, targets, initial)))

    def initial_kind(self, start: int) -> int:
        """Return the kind of the span around a window's first row; 0 outside, or where it tells."""
        for position in range(start, -1, -1):
            row = int(self._bin.ids[position])
            if row < self._num_lang:
                return 0
            if self._band[row]:
                return int(self._band[row])
            if self._event[row] != _NO_EVENT:
                return max(0, int(self._event[row]))
        return 0
