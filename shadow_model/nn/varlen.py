"""Attention of packed runs of queries over packed runs of keys, by torch's CUDA flash kernels.

The same contract as `flash.py` (log-sum-exp out; the backward takes that of the whole softmax) for
runs of unequal length without padding. The kernels want half precision and a head width that is a
multiple of 8, at most 256. Not covered: any other device or dtype; `supports` says so.

Legend: S packed queries, K packed keys, n runs, H query heads, G key/value heads, D head width.

Source: FlashAttention-2 (arXiv 2307.08691); torch.nn.attention.varlen.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from shadow_model.nn.flash import Attended

_HALF = (torch.float16, torch.bfloat16)
_WIDEST = 256
_aten = torch.ops.aten


class Runs(NamedTuple):
    """Which queries read which keys: run i of the queries all of run i of the keys.

    Attributes:
        query_bounds: (n + 1,) int32, first query of each run; the last is S.
        key_bounds: (n + 1,) int32, the same of the keys.
        longest: At least the queries, and the keys, of any run.
        causal: Query i of a run reads the run's keys 0..i.
    """

    query_bounds: Tensor
    key_bounds: Tensor
    longest: tuple[int, int]
    causal: bool


def supports(query: Tensor) -> bool:
    """Tell whether the kernels take queries (..., D) of this device, dtype and head width."""
    width = query.shape[-1]
    fits = width % 8 == 0 and width <= _WIDEST
    return query.is_cuda and query.dtype in _HALF and fits


def attend_runs(query_SHD: Tensor, key_KGD: Tensor, value_KGD: Tensor, runs: Runs) -> Attended:
    """Return softmax attention of each run, scale D^-½: (S, H, D), and (S, H) float32."""
    out, log_sum, *_ = _aten._flash_attention_forward(
        query_SHD,
        key_KGD,
        value_KGD,
        runs.query_bounds,
        runs.key_bounds,
        *runs.longest,
        0.0,
        runs.causal,
        False,
    )
    return Attended(out, log_sum.t())


def attend_runs_backward(
    grad_SHD: Tensor,
    query_SHD: Tensor,
    key_KGD: Tensor,
    value_KGD: Tensor,
    attended: Attended,
    runs: Runs,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the runs' shares of the gradients by query, key and value, shaped like them.

    Args:
        grad_SHD: (S, H, D), by the output of the whole softmax.
        query_SHD, key_KGD, value_KGD, runs: As `attend_runs` got them.
        attended: Output (S, H, D) and log-sum-exp (S, H) of the whole softmax.
    """
    no_dropout = torch.zeros(2, dtype=torch.uint64, device=query_SHD.device)
    grads: tuple[Tensor, Tensor, Tensor] = _aten._flash_attention_backward(
        grad_SHD,
        query_SHD,
        key_KGD,
        value_KGD,
        attended.out,
        attended.log_sum.t().contiguous(),
        runs.query_bounds,
        runs.key_bounds,
        *runs.longest,
        0.0,
        runs.causal,
        no_dropout,
        no_dropout.new_empty(0),
    )
    return grads
