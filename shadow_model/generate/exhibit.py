"""The export stage: a trained model's file, how fast it generates, samples beside the data's own.

model.shadow             see export.py; engram_<i>.safetensors beside it where there are memories
export.json              size, bits a weight, tokens/s with and without int8 products
samples/samples.json     each sample: kind, how it begins, how the data and the model go on
samples/<kind>s.png      of each kind that can be seen or heard: above the data's, below the model's
samples/<name>.*         every sample as text, picture, sound or clip
"""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shadow_model.data.media import contact_sheet, load_codecs
from shadow_model.data.text import Pieces
from shadow_model.export import MODEL_FILE, Exported, load_export, write_export
from shadow_model.generate.config import ExportConfig
from shadow_model.generate.decode import generate, reader_of
from shadow_model.generate.grammar import Grammar
from shadow_model.generate.sampling import Sampling
from shadow_model.generate.writer import Part, Writer, write_document
from shadow_model.progress import Progress, silent
from shadow_model.store import write_whole
from shadow_model.table.layout import BANDS, KINDS, Kind, Layout
from shadow_model.table.store import Table
from shadow_model.train.checkpoint import load_checkpoint, read_weights
from shadow_model.train.config import ArmConfig
from shadow_model.train.schedule import phase_at

FIGURES, SAMPLES, SAMPLES_JSON = "export.json", "samples", "samples.json"
_VERSION = 1
_MOST_DOCUMENTS = 20_000


class _Sample(NamedTuple):
    """A held-out document's beginning, and what follows it in the data."""

    kind: Kind
    prompt: list[int]
    rest: list[int]


def build_export(
    out: Path,
    weights: Path,
    table: Path,
    bins: Path,
    arm: ArmConfig,
    config: ExportConfig,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Export a model and show what it makes.

    Args:
        out: Folder to write into; it must exist.
        weights: Folder of weights that stay: a run's `final`.
        table: Folder of the table stage: table.npz, and pieces and codecs where it has them.
        bins: Folder of the pack stage; its held-out documents begin the samples.
        arm: What trained the weights; its last phase says whether attention was sparse.
        config: What is shown.
        progress: Told of samples made.

    Returns:
        The figures of export.json.

    Raises:
        CheckpointError, LayoutError, DataError: Weights, table, pieces or codecs are unsound.
    """
    sparse = phase_at(arm, arm.train.num_steps - 1).sparse
    size = _export(out / MODEL_FILE, weights, table, sparse)
    exported = load_export(out / MODEL_FILE)
    figures: dict[str, Any] = {"version": _VERSION, **size, "loops": exported.stated.loops}
    if exported.pieces is not None:
        writer = Writer(exported.table, exported.pieces, exported.codecs)
        figures["tokens_per_s"] = _speeds(exported, writer, config)
        exported.model.use_int8()
        samples = [*_held_out(bins / "val.bin", exported.table.layout, writer, config)]
        _write_samples(out / SAMPLES, samples, exported, writer, config, progress)
        figures["samples"] = len(samples)
    text = json.dumps(figures, indent=1, allow_nan=False) + "\n"
    write_whole(out / FIGURES, text.encode())
    return figures


def _export(path: Path, folder: Path, table_folder: Path, sparse: bool) -> dict[str, Any]:
    table = Table.load(table_folder / "table.npz")
    found = sorted(p for p in table_folder.glob("pieces.*") if p.is_file())
    pieces = Pieces.load(found[0]) if found else None
    codecs = load_codecs(table_folder / "codecs")
    model = load_checkpoint(folder, table)
    size = write_export(path, model, read_weights(folder), table, pieces, codecs, sparse)
    named = {f"{name}_bytes": value for name, value in size._asdict().items()}
    named["bits_per_weight"] = named.pop("bits_per_weight_bytes")
    return named


def _speeds(exported: Exported, writer: Writer, config: ExportConfig) -> dict[str, float]:
    """Measure single sequences, with float and with int8 products, in turn."""
    reader = reader_of(exported)
    grammar = Grammar(exported.table.layout, {})
    best: dict[str, float] = {}
    for _ in range(3):
        for name, int8 in (("float", False), ("int8", True)):
            exported.model.use_int8(int8)
            speed = 0.0
            done, seed = 0, 0
            while done < config.speed_rows and seed < config.speed_rows:  # documents may be short
                sampling = Sampling(temperature=1, seed=seed)
                made = generate(reader, grammar, [writer.prompt("")], config.speed_rows, sampling)
                done, seed = done + len(made.rows[0]), seed + 1
                speed = max(speed, made.tokens_per_s)
            best[name] = round(max(best.get(name, 0.0), speed), 1)
    return best


def _held_out(
    path: Path, layout: Layout, writer: Writer, config: ExportConfig
) -> Iterator[_Sample]:
    """Yield some held-out documents of each kind, cut where the model is to go on."""
    starts = {layout.control(f"[gen_{band}]"): KINDS[i] for i, band in enumerate(BANDS, 1)}
    found: dict[Kind, list[_Sample]] = {kind: [] for kind in ("text", *writer.limits)}
    for rows in islice(_documents(path, layout), _MOST_DOCUMENTS):
        cut = next((i + 1 for i, row in enumerate(rows) if row in starts), None)
        kind = "text" if cut is None else starts[rows[cut - 1]]
        if cut is None:
            if max(rows) >= layout.num_lang or len(rows) <= 2 * config.prompt_rows:
                continue  # spans to understand, and what is too short to go on with
            cut = config.prompt_rows
        if kind in found:
            before = [layout.marks["sep"], *rows[:cut]]
            found[kind].append(_Sample(kind, before, rows[cut:]))
    for samples in found.values():  # neighbours are alike: parts of one photograph
        num = min(config.samples, len(samples))
        yield from (samples[i * len(samples) // num] for i in range(num))


def _documents(path: Path, layout: Layout) -> Iterator[list[int]]:
    """Yield the whole documents of a bin, without their separators."""
    rows = np.memmap(path, "<u4", "r")
    ends = np.flatnonzero(rows == layout.marks["sep"])
    for first, last in zip(ends[:-1] + 1, ends[1:], strict=True):
        if last > first:
            yield rows[first:last].tolist()


def _write_samples(
    out: Path,
    samples: list[_Sample],
    exported: Exported,
    writer: Writer,
    config: ExportConfig,
    progress: Progress,
) -> None:
    out.mkdir()
    reader, grammar = reader_of(exported), Grammar(exported.table.layout, writer.limits)
    told: list[dict[str, Any]] = []
    items: dict[Kind, list[tuple[np.ndarray, np.ndarray]]] = {}
    progress(0, 1, f"samples: {len(samples)} side by side")
    limits = writer.limits
    most = [limits[s.kind].most + 2 if s.kind != "text" else config.text_rows for s in samples]
    prompts = [sample.prompt for sample in samples]
    generated = generate(reader, grammar, prompts, most, config.sampling).rows if samples else []
    for number, (sample, rows) in enumerate(zip(samples, generated, strict=True)):
        name = f"{sample.kind}_{number}"
        parts = {"data": writer.parts(sample.rest), "model": writer.parts(rows)}
        for origin, of_origin in parts.items():
            write_document(out, f"{name}_{origin}", of_origin, writer)
        shown = {origin: _item(of_origin) for origin, of_origin in parts.items()}
        if shown["data"] is not None and shown["model"] is not None:
            items.setdefault(sample.kind, []).append((shown["data"], shown["model"]))
        told.append(_told(sample, rows, writer, config))
    for kind, pairs in items.items():
        data, model = zip(*pairs, strict=True)
        write_whole(out / f"{kind}s.png", contact_sheet(data, model))
    write_whole(out / SAMPLES_JSON, (json.dumps(told, indent=1) + "\n").encode())
    progress(1, 1, "samples written")


def _item(parts: list[Part]) -> np.ndarray | None:
    return next((part.array for part in parts if part.array is not None), None)


def _told(sample: _Sample, rows: list[int], writer: Writer, config: ExportConfig) -> dict[str, Any]:
    begins = writer.text(sample.prompt[1:])
    if sample.kind != "text":
        return {"kind": sample.kind, "begins": begins}
    data = writer.text(sample.rest[: config.text_rows])
    return {"kind": "text", "begins": begins, "data": data, "model": writer.text(rows)}
