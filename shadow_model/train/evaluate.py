"""Held-out loss on fixed windows, the same for every run that is compared.

The standard error is that of a mean over windows: windows are independent draws, the tokens of one
are not. A kind's loss is a ratio of sums over windows; its standard error follows from the
windows' residuals. So are losses by transition, and bits per byte of the text: those of its
language rows over the bytes that they spell.

Legend: B windows of a batch, W windows in all, K kinds, N transitions.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shadow_model.errors import NumericsError
from shadow_model.nn.model import Shadow
from shadow_model.nn.readout import Readout
from shadow_model.nn.transitions import TRANSITIONS, transitions_of
from shadow_model.table.layout import KINDS
from shadow_model.train.device import Device
from shadow_model.train.step import TokenBatch


class HeldOut(NamedTuple):
    """Losses of every window.

    Attributes:
        sums: (W, K) float64, nats summed over the kept targets of each kind.
        counts: (W, K) int64, kept targets of each kind.
        transition_sums: (W, N) float64, the same nats by transition.
        transition_counts: (W, N) int64.
        text_bytes: (W,) int64, bytes that the language rows of text->text targets spell; None
            where that is unknown.
        dropped: Targets outside their row set.
    """

    sums: np.ndarray
    counts: np.ndarray
    transition_sums: np.ndarray
    transition_counts: np.ndarray
    text_bytes: np.ndarray | None
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
    row_bytes: Tensor | None = None,
    after_batch: Callable[[int], None] | None = None,
) -> HeldOut:
    """Compute the losses of fixed windows; the model's mode is left as it was.

    Args:
        batches: The windows, on the model's device.
        loops: Passes over the core.
        sparse: Whether attention reads the chosen blocks only.
        device: Where, and in which dtype.
        row_bytes: (num_lang,) int64 on the device, bytes that each language row spells.
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
        first_marker = readout.row_sets[0].tail
        places = transitions_of(kinds, batch.targets, first_marker)
        sums = [_sums_by(nats, kinds.long(), kept, len(KINDS))]
        sums += [_sums_by(nats, places, kept, len(TRANSITIONS)), (~kept).sum(1, keepdim=True)]
        if row_bytes is not None:
            spelled = row_bytes[batch.targets.clamp_max(len(row_bytes) - 1)]
            sums.append((spelled * (kept & (places == 0))).sum(1, keepdim=True))
        parts.append(torch.cat([part.double() for part in sums], 1).cpu())
        done += len(batch.ids)
        if after_batch:
            after_batch(done)
    model.train(was_training)
    return _gather(torch.cat(parts))


def summarise(held_out: HeldOut) -> dict[str, Any]:
    """Return means and standard errors as an `evaluate` record holds them.

    Losses are nats a target, `bits` the same in bits; `text_bits_per_byte` is that of language
    rows outside spans, None where their bytes are unknown.
    """
    sums, counts = held_out.sums, held_out.counts
    by_transition = (held_out.transition_sums, held_out.transition_counts)
    bits_per_byte: tuple[float | None, float | None] = (None, None)
    if held_out.text_bytes is not None:
        bits_per_byte = _ratio(held_out.transition_sums[:, 0] / math.log(2), held_out.text_bytes)
    return {
        **_losses(sums.sum(1), counts.sum(1)),
        "kinds": _table(KINDS, sums, counts),
        "transitions": _table(TRANSITIONS, *by_transition),
        "text_bits_per_byte": bits_per_byte[0],
        "text_bits_per_byte_error": bits_per_byte[1],
        "windows": len(sums),
        "targets": int(counts.sum()),
        "dropped": held_out.dropped,
    }


def _table(names: Sequence[str], sums: np.ndarray, counts: np.ndarray) -> dict[str, dict[str, Any]]:
    return {
        name: {**_losses(sums[:, i], counts[:, i]), "count": int(counts[:, i].sum())}
        for i, name in enumerate(names)
    }


def _losses(sums: np.ndarray, counts: np.ndarray) -> dict[str, float | None]:
    loss, error = _ratio(sums, counts)
    bits = None if loss is None else loss / math.log(2)
    return {"loss": loss, "standard_error": error, "bits": bits}


def _sums_by(nats: Tensor, groups: Tensor, kept: Tensor, number: int) -> Tensor:
    """Return (B, 2 · number) float64: sums of nats and kept targets of each group, a window."""
    here = torch.nn.functional.one_hot(groups, number).double() * kept[..., None]
    return torch.cat([torch.einsum("btk,bt->bk", here, nats.double()), here.sum(1)], 1)


def _gather(windows: Tensor) -> HeldOut:
    kinds, transitions = 2 * len(KINDS), 2 * len(TRANSITIONS)
    values = windows.numpy()
    by_kind, by_transition, dropped, spelled = np.split(
        values, [kinds, kinds + transitions, kinds + transitions + 1], 1
    )
    sums, counts = np.split(by_kind, 2, 1)
    if not np.isfinite(sums).all():
        bad = np.flatnonzero(~np.isfinite(sums).all(1)).tolist()
        fix = "Resume from an older checkpoint with a lower lr."
        raise NumericsError("evaluation", "have finite losses", f"non-finite windows {bad}", fix)
    transition_sums, transition_counts = np.split(by_transition, 2, 1)
    return HeldOut(
        sums=sums,
        counts=counts.astype(np.int64),
        transition_sums=transition_sums,
        transition_counts=transition_counts.astype(np.int64),
        text_bytes=spelled[:, 0].astype(np.int64) if spelled.shape[1] else None,
        dropped=int(dropped.sum()),
    )


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
