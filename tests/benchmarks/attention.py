"""Measure block-sparse attention against causal attention and against a boolean mask.

Run it as `python tests/benchmarks/attention.py`. One layer's attention, forward and backward, of
the full model's shape: ours with its selection of blocks; torch's causal attention; torch's
attention with a boolean T x T mask of what was selected (making that mask is not counted). All
forms are measured in one run, by turns, so that other work on the machine meets all of them. Time
is the median of the rounds, spread the largest less the smallest. Memory is the peak above what the
process held before, in a fresh process for each; on CUDA what the allocator gave.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table as Grid
from torch import Tensor

from shadow_model.nn.attention import dense_attention, sparse_attention
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.index import select_blocks
from shadow_model.train.device import Device, choose_device

_FORMS = ("sparse", "causal", "masked")
_MIB = 1 << 20
_CONFIG = ModelConfig()


class Case(NamedTuple):
    """What is measured: windows of so many tokens, on how many threads, where."""

    tokens: int
    windows: int
    threads: int
    device: str


class Inputs(NamedTuple):
    """Queries, keys, values (leaves), index queries and keys."""

    query: Tensor
    key: Tensor
    value: Tensor
    index_query: Tensor
    index_key: Tensor


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048, 4096, 8192, 16_384])
    parser.add_argument("--windows", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--forms", nargs="+", choices=_FORMS, default=list(_FORMS))
    parser.add_argument("--json", type=Path, default=None, help="also write the figures here")
    options = parser.parse_args()
    figures = []
    for tokens in options.tokens:
        case = Case(tokens, options.windows, options.threads, options.device)
        figures += list(measure(case, options.forms, options.rounds))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    Console(width=120).print(drawn(figures, options.threads))


def measure(case: Case, forms: list[str], rounds: int) -> Iterator[dict[str, Any]]:
    """Yield each form's figures."""
    device = choose_device(case.device, "auto", case.threads)
    inputs = make_inputs(case, device)
    works = {form: make_work(form, inputs, device) for form in forms}
    times: dict[str, list[float]] = {form: [] for form in forms}
    for number in range(rounds + 1):
        for form, work in works.items():
            seconds = timed(work, device)
            if number:  # the first warms up
                times[form].append(seconds)
    for form in forms:
        yield {
            "form": form,
            "tokens": case.tokens,
            "windows": case.windows,
            "median_s": round(statistics.median(times[form]), 4),
            "spread_s": round(max(times[form]) - min(times[form]), 4),
            "peak_bytes": in_fresh_process(form, case),
            **device.describe(),
        }


def make_inputs(case: Case, device: Device) -> Inputs:
    """Draw the inputs of a layer."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        drawn = torch.randn(case.windows, case.tokens, *shape, generator=generator)
        return drawn.to(device.device)

    heads, groups, width = _CONFIG.heads, _CONFIG.kv_heads, _CONFIG.head_width
    leaves = [draw(n, width).requires_grad_() for n in (heads, groups, groups)]
    return Inputs(*leaves, draw(_CONFIG.index_width), draw(_CONFIG.index_width))


def make_work(form: str, inputs: Inputs, device: Device) -> Callable[[], None]:
    """Return one layer's attention, forward and backward."""
    query, key, value = inputs[:3]
    mask = make_mask(inputs) if form == "masked" else None

    def attend() -> Tensor:
        if form == "sparse":
            chosen = choose(inputs)
            block, top = _CONFIG.index_block, _CONFIG.index_top
            return sparse_attention(query, key, value, chosen, block, top)
        if form == "causal":
            return dense_attention(query, key, value)
        turned = (x.transpose(1, 2) for x in (query, key, value))
        out = torch.nn.functional.scaled_dot_product_attention(
            *turned, attn_mask=mask, enable_gqa=True
        )
        return out.transpose(1, 2).flatten(2)

    def work() -> None:
        with device.autocast():
            out = attend()
        torch.autograd.grad(out, (query, key, value), out.detach())

    return work


def choose(inputs: Inputs) -> Tensor:
    """Select key blocks."""
    block, top = _CONFIG.index_block, _CONFIG.index_top
    return select_blocks(inputs.index_query, inputs.index_key, block, top)


def make_mask(inputs: Inputs) -> Tensor:
    """Return the selection as (B, 1, T, T) bool."""
    tokens = inputs.query.shape[1]
    read = choose(inputs).repeat_interleave(_CONFIG.index_block, 2)[..., :tokens]
    return read.tril_()[:, None]


def timed(work: Callable[[], None], device: Device) -> float:
    """Return the seconds of a call."""
    device.synchronise()
    began = perf_counter()
    work()
    device.synchronise()
    return perf_counter() - began


def in_fresh_process(form: str, case: Case) -> int:
    """Return the peak bytes of a form above its inputs, in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(peak_bytes, form, case).result()


def peak_bytes(form: str, case: Case) -> int:
    """Return the peak bytes of one call above what was held before."""
    device = choose_device(case.device, "auto", case.threads)  # type: ignore[arg-type]
    make_work("causal", make_inputs(case._replace(tokens=64), device), device)()  # libraries
    inputs = make_inputs(case, device)
    device.reset_peak()
    before = device.peak_bytes()
    make_work(form, inputs, device)()
    return device.peak_bytes() - before


def drawn(figures: list[dict[str, Any]], threads: int) -> Grid:
    """Draw the figures, with times as multiples of ours."""
    grid = Grid(
        "tokens", "form", "median", "spread", "of sparse", "peak", title=f"{threads} threads"
    )
    ours = {f["tokens"]: f["median_s"] for f in figures if f["form"] == "sparse"}
    for f in figures:
        base = ours.get(f["tokens"])
        grid.add_row(
            f"{f['tokens']:,}",
            f["form"],
            f"{1e3 * f['median_s']:,.0f} ms",
            f"{1e3 * f['spread_s']:,.0f} ms",
            f"{f['median_s'] / base:.2f}x" if base else "",
            f"{f['peak_bytes'] / _MIB:,.0f} MiB",
        )
    return grid


if __name__ == "__main__":
    main()
