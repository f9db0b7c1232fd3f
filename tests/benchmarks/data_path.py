"""Measure remap and pack against `cp` of the same bytes, and the anonymous memory they take.

Run it as `python tests/benchmarks/data_path.py --tokens 200000000`. Each figure is the best of some
rounds, with `cp` timed right before each round, so that both meet the same page cache. Reading the
table, the same for any number of tokens, is timed apart and taken off. CPU is user and system time
of all threads, which other work on the machine disturbs less. Memory is the peak of RssAnon above
what it was before the stage: mapped files do not count, for the kernel can drop them.
"""

import argparse
import os
import pydoc_data.topics
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table as Grid

from shadow_model.data.id_layout import IdLayout
from shadow_model.data.pack import PackConfig, pack_bins
from shadow_model.data.remap import RemapConfig, remap_shards
from shadow_model.data.shards import list_shards, write_shard
from shadow_model.data.text import Pieces
from shadow_model.table.layout import BANDS
from shadow_model.table.store import Table
from shadow_model.table.synthetic import synthetic_table

_SHARD_TOKENS = 5_000_000
_NUM_LANG = 65_536
_SPAN_TOKENS = 64
_SAMPLE_S = 0.01
_MIB = 1 << 20


class Case(NamedTuple):
    """Inputs of one measurement: a folder with ids/ and table/."""

    name: str
    folder: Path


class Cost(NamedTuple):
    """Wall-clock and CPU seconds, those of child processes included."""

    wall_s: float
    cpu_s: float

    def less(self, other: "Cost") -> "Cost":
        """Take off another cost."""
        return Cost(self.wall_s - other.wall_s, self.cpu_s - other.cpu_s)


class Measured(NamedTuple):
    """One stage: the least cost of `cp`, of reading the table and of the stage without that; the
    worst peak of anonymous bytes; its counts."""

    copy: Cost
    table: Cost
    stage: Cost
    anonymous_bytes: int
    counts: dict[str, Any]


def main() -> None:
    """Build the inputs, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=200_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None, help="where to work; a temporary one")
    options = parser.parse_args()
    columns = (
        "stage",
        "tokens",
        "cp: wall, CPU",
        "table",
        "stage: wall, CPU",
        "of cp",
        "M/s",
        "peak",
    )
    grid = Grid(*columns, title="remap and pack against cp")
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        for build in (build_rows, build_expansion):
            case = build(Path(name), options.tokens)
            for stage, measured in measure(case, options.rounds):
                add_row(grid, f"{stage}, {case.name}", options.tokens, measured)
            shutil.rmtree(case.folder)
    Console(width=120).print(grid)


def build_rows(root: Path, tokens: int) -> Case:
    """Write ids of which every one has a row: text, and pictures, sounds and clips in one lane."""
    folder = root / "rows"
    save(folder, synthetic_table(_NUM_LANG, seed=0), IdLayout.dense(_NUM_LANG, None))
    rng = np.random.default_rng(0)
    layout = IdLayout.dense(_NUM_LANG, None)
    for index, size in enumerate(shard_sizes(tokens)):
        ids = skewed(rng, _NUM_LANG, size)
        if index % 3:
            for band, first in zip(BANDS, range(0, 3 * _SPAN_TOKENS, _SPAN_TOKENS), strict=True):
                at, count = layout.bands[band]
                columns = ids[: size // 256 * 256].reshape(-1, 256)[:, first : first + _SPAN_TOKENS]
                columns[:] = at + columns % count
        write_shard(folder / shard_name(index), ids)
    return Case("every id has a row", folder)


def build_expansion(root: Path, tokens: int) -> Case:
    """Write text ids of which the rarer half has no row, only byte pieces."""
    folder = root / "expansion"
    pieces = Pieces.train(pydoc_data.topics.topics.values(), 8192)
    old = frequent_first(pieces)
    kept = np.sort(old[: len(old) // 2])
    table = replace(synthetic_table(len(kept), seed=0), lang_old_ids=kept.astype(np.int64))
    save(folder, table, IdLayout.dense(pieces.size, "pieces.model"))
    pieces.save(folder / "ids" / "pieces.model")
    rng = np.random.default_rng(0)
    for index, size in enumerate(shard_sizes(tokens)):
        write_shard(folder / shard_name(index), old[skewed(rng, len(old), size)])
    return Case("expansion", folder)


def frequent_first(pieces: Pieces) -> np.ndarray:
    """Return all piece ids, the 256 byte pieces first, then in the order they were learnt."""
    others = np.setdiff1d(np.arange(pieces.size), pieces.byte_ids)
    return np.concatenate([others[:256], pieces.byte_ids, others[256:]]).astype(np.uint32)


def skewed(rng: np.random.Generator, size: int, tokens: int) -> np.ndarray:
    """Draw ranks below `size` as words occur, about 1 / rank."""
    return np.minimum((size ** rng.random(tokens, np.float32)) - 1, size - 1).astype(np.uint32)


def shard_sizes(tokens: int) -> list[int]:
    """Divide tokens into shards; at least 16, so that some are held out."""
    count = max(16, tokens // _SHARD_TOKENS)
    return [tokens // count] * count


def shard_name(index: int) -> str:
    """Name a shard below a case's folder."""
    return f"ids/knowledge/made/part_{index:05d}.npz"


def save(folder: Path, table: Table, layout: IdLayout) -> None:
    """Write the table and the layout of a case."""
    (folder / "table").mkdir(parents=True)
    (folder / "ids").mkdir()
    table.save(folder / "table" / "table.npz")
    layout.save(folder / "ids")


def measure(case: Case, rounds: int) -> Iterator[tuple[str, Measured]]:
    """Yield remap, then pack of what remap wrote."""
    ids, table, out = (case.folder / name for name in ("ids", "table", "out"))
    names = list_shards(ids)
    remap = lambda: remap_shards(ids, names, table, out / "remap", RemapConfig())  # noqa: E731
    yield "remap", best(remap, table, ids, out / "remap", rounds)
    config, made = PackConfig(val_every=7), [out / "remap"]
    pack = lambda: pack_bins(made, table / "table.npz", out / "pack", config)  # noqa: E731
    yield "pack", best(pack, table, out / "remap", out / "pack", rounds)


def best(
    stage: Callable[[], dict[str, Any]], table: Path, source: Path, out: Path, rounds: int
) -> Measured:
    """Time a stage and `cp` of its inputs, both into folders that do not exist."""
    copy, peak, counts = out.with_name("copy"), 0, dict[str, Any]()
    copies, tables, stages = list[Cost](), list[Cost](), list[Cost]()
    for _ in range(rounds):
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(exist_ok=True)
        copies.append(cost(lambda: subprocess.run(["cp", "-r", source, copy], check=True)))
        shutil.rmtree(copy)
        tables.append(cost(lambda: Table.load(table / "table.npz")))
        with peak_anonymous() as samples:
            stages.append(cost(lambda: counts.update(stage())))
        peak = max(peak, max(samples) - samples[0])
    return Measured(least(copies), least(tables), least(stages).less(least(tables)), peak, counts)


def cost(work: Callable[[], object]) -> Cost:
    """Time one call."""
    started, cpu = time.perf_counter(), sum(os.times()[:4])
    work()
    return Cost(time.perf_counter() - started, sum(os.times()[:4]) - cpu)


def least(costs: list[Cost]) -> Cost:
    """Return the least of each."""
    return Cost(min(c.wall_s for c in costs), min(c.cpu_s for c in costs))


@contextmanager
def peak_anonymous() -> Iterator[list[int]]:
    """Yield a list that fills with RssAnon in bytes, the first from before the block."""
    samples, ended = [anonymous_bytes()], threading.Event()

    def sample() -> None:
        while not ended.wait(_SAMPLE_S):
            samples.append(anonymous_bytes())

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def anonymous_bytes() -> int:
    """Return this process's resident anonymous memory."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel does not state RssAnon")


def add_row(grid: Grid, name: str, tokens: int, measured: Measured) -> None:
    """Add one stage to the printed table."""
    out = measured.counts.get("tokens_out", tokens)
    grew = "" if out == tokens else f" -> {out / 1e6:.0f} M"
    copy, stage = measured.copy, measured.stage
    grid.add_row(
        name,
        f"{tokens / 1e6:.0f} M{grew}",
        f"{copy.wall_s:.2f} s, {copy.cpu_s:.2f} s",
        f"{measured.table.wall_s:.2f} s",
        f"{stage.wall_s:.2f} s, {stage.cpu_s:.2f} s",
        f"{100 * copy.wall_s / stage.wall_s:.0f} %",
        f"{tokens / stage.wall_s / 1e6:.0f}",
        f"{measured.anonymous_bytes / _MIB:.0f} MiB",
    )


if __name__ == "__main__":
    main()
