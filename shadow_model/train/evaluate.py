"""Held-out loss on fixed windows, the same for every run that is compared.

The standard error is that of a mean over windows: windows are independent draws, the tokens of one
are not. A kind's loss is a ratio of sums over windows; its standard error follows from the
windows' residuals.

Legend: B windows of a batch, W windows in all, K kinds.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shadow_model.errors import NumericsError
from shadow_model.nn.model import Shadow
from shadow_model.nn.readout import Readout
from shadow_model.table.layout import KINDS
from shadow_model.train.device import Device
from shadow_model.train.step import TokenBatch


class HeldOut(NamedTuple):
    """Losses of every window.

    Attributes:
        sums: (W, K) float64, nats summed over the kept targets of each kind.
        counts: (W, K) int64, kept targets of each kind.
        dropped: Targets outside their row set.
    """

    sums: np.ndarray
    counts: np.ndarray
    dropped: int


@torch.no_grad()
def evaluate(
    model: Shadow,
    readout: Readout,
    batches: Iterable[TokenBatch],
    *,
    loops: int,
    sparse: bool,
    device: Device,
    after_batch: Callable[[int], None] | None = None,
) -> HeldOut:
    """Compute the losses of fixed windows; the model's mode is left as it was.

    Args:
        batches: The windows, on the model's device.
        loops: Passes over the core.
        sparse: Whether attention reads the chosen blocks only.
        device: Where, and in which dtype.
        after_batch: Called with the windows done.

    Raises:
        NumericsError: A window's loss is not finite.
    """
    was_training = model.training
    model.eval()
    parts, done = [], 0
    for batch in batches:
        with device.autocast():
            hidden = model(batch.ids, loops, sparse).hidden
            nats, kinds, kept = readout.token_losses(
                hidden, batch.ids, batch.targets, batch.initial
            )
        parts.append(_window_sums(nats, kinds, kept).cpu())
        done += len(batch.ids)
        if after_batch:
            after_batch(done)
    model.train(was_training)
    return _gather(torch.cat(parts))


def summarise(held_out: HeldOut) -> dict[str, Any]:
    """Return means and standard errors, in nats a target, as an `evaluate` record holds them."""
    sums, counts = held_out.sums, held_out.counts
    loss, error = _ratio(sums.sum(1), counts.sum(1))
    kinds: dict[str, dict[str, Any]] = {}
    for index, kind in enumerate(KINDS):
        mean, standard_error = _ratio(sums[:, index], counts[:, index])
        count = int(counts[:, index].sum())
        kinds[kind] = {"loss": mean, "standard_error": standard_error, "count": count}
    return {
        "loss": loss,
        "standard_error": error,
        "kinds": kinds,
        "windows": len(sums),
        "targets": int(counts.sum()),
        "dropped": held_out.dropped,
    }


def _window_sums(nats: Tensor, kinds: Tensor, kept: Tensor) -> Tensor:
    """Return (B, 2K + 1) float64: sums, counts and dropped targets of each window."""
    here = torch.nn.functional.one_hot(kinds.long(), len(KINDS)).double() * kept[..., None]
    sums = torch.einsum("btk,bt->bk", here, nats.double())
    dropped = (~kept).sum(1, keepdim=True).double()
    return torch.cat([sums, here.sum(1), dropped], 1)


def _gather(windows: Tensor) -> HeldOut:
    values = windows.numpy()
    sums, counts, dropped = np.split(values, [len(KINDS), 2 * len(KINDS)], 1)
    if not np.isfinite(sums).all():
        bad = np.flatnonzero(~np.isfinite(sums).all(1)).tolist()
        fix = "Resume from an older checkpoint with a lower lr."
        raise NumericsError("evaluation", "have finite losses", f"non-finite windows {bad}", fix)
    return HeldOut(sums, counts.astype(np.int64), int(dropped.sum()))


def _ratio(sums: np.ndarray, counts: np.ndarray) -> tuple[float | None, float | None]:
    """Return the ratio of two sums over windows, and its standard error (delta method)."""
    total, windows = counts.sum(), len(counts)
    if not total:
        return None, None
    ratio = sums.sum() / total
    if windows < 2:
        return float(ratio), None
    residuals = sums - ratio * counts
    variance = (residuals**2).sum() * windows / (windows - 1)
    return float(ratio), float(np.sqrt(variance) / total)
