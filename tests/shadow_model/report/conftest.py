"""A small finished chain on disk, as its stages leave it, for the report to read."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shadow_model.receipt import Identity, Receipt
from shadow_model.report.inputs import ReportInputs
from shadow_model.store import Store
from shadow_model.table.layout import BANDS, KINDS
from shadow_model.table.synthetic import synthetic_table

ENTROPY = {"text": 5.4, "picture": 8.1, "sound": 7.2, "clip": 6.8}
MODULES = ["shadow_model.table.layout"]
Metrics = Callable[..., list[dict[str, Any]]]


def arm_metrics(
    name: str,
    *,
    tokens: int = 1_200_000,
    gain: float = 0.05,
    error: float = 0.012,
    annealed: bool = True,
    num_steps: int = 600,
    flops_per_token: float = 4.0e7,
) -> list[dict[str, Any]]:
    """Return the records of one arm: losses fall from 8 nats by a smooth law, less `gain`."""
    rng = np.random.default_rng(len(name))
    per_step = tokens // num_steps

    def common(step: int) -> dict[str, Any]:
        done = step * per_step
        grown = name == "proof" and step > 0.6 * num_steps
        return {
            "step": step,
            "tokens": done,
            "ctx_tokens": 512,
            "loops": 4 if grown else 2,
            "flops": done * flops_per_token,
            "elapsed_s": done / 9_000,
        }

    def losses(step: int, noise: float) -> dict[str, dict[str, Any]]:
        share = 1 - math.exp(-4 * step / num_steps)
        return {
            kind: {
                "loss": 9.0 - share * (9.3 - ENTROPY[kind] + gain) + float(rng.normal(0, noise)),
                "standard_error": error * (1 + index),
                "count": 10_000 >> index,
            }
            for index, kind in enumerate(KINDS)
        }

    def total(kinds: dict[str, dict[str, Any]]) -> float:
        count = sum(k["count"] for k in kinds.values())
        return sum(k["loss"] * k["count"] for k in kinds.values()) / count

    records: list[dict[str, Any]] = [
        {"event": "start", "step": 0, "parameters": 1_870_000, "device": "cpu"}
    ]
    for step in range(0, num_steps + 1, 10):
        if step:
            kinds = losses(step, 0.04)
            log = {"loss": total(kinds), "kinds": kinds, "lr": 1e-3, "index_kl": 0.1}
            records.append({"event": "log", **common(step), **log, "tokens_per_s": 9_000.0})
        if name == "proof" and step == 360:
            before = {"event": "evaluate", **common(step), "loss": 6.5, "kinds": losses(step, 0.0)}
            growth = {"event": "growth", **common(step), "from_loops": 2, "loops": 4}
            after = {**before, "why": "growth", "loss": 6.53, "loops": 4}
            records += [{**before, "why": "before growth", "loops": 2}, growth, after]
        if step % 100 == 0:
            kinds = losses(step, 0.0)
            held_out = {"loss": total(kinds), "standard_error": error, "kinds": kinds}
            held_out |= {"windows": 90 if step == num_steps else 30, "why": "periodic"}
            records.append({"event": "evaluate", **common(step), **held_out})
    end = {"annealed": annealed, "peak_bytes": 1_600_000_000}
    return [*records, {"event": "final", **common(num_steps), **end}]


def write_metrics(folder: Path, records: list[dict[str, Any]]) -> Path:
    """Write metrics.jsonl into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "metrics.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


class Chain:
    """Builds the stages one after another in a store."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        self.receipts: dict[str, Receipt] = {}

    def stage(
        self, name: str, reads: list[str], fill: Callable[[Path], None], **counts: Any
    ) -> None:
        """Build one stage that reads others."""
        inputs = [self.receipts[read] for read in reads]
        identity = Identity.of(name, inputs, {"seed": 0}, MODULES)
        with self.store.build(identity) as build:
            fill(build.folder)
            build.counts.update(counts)
        assert build.receipt is not None
        self.receipts[name] = build.receipt

    def inputs(self, without: tuple[str, ...] = ()) -> ReportInputs:
        """Return what a report of these stages reads."""
        receipts = [r for name, r in self.receipts.items() if name not in without]
        return ReportInputs.of(self.store, receipts)


def fill_sources(folder: Path) -> None:
    (folder / "preview").mkdir()
    across, down = np.meshgrid(np.arange(320), np.arange(96))
    for index, kind in enumerate(("clips", "pictures", "sounds")):
        channels = [across % 256, down * 2 % 256, (across + 80 * index) % 256]
        picture = np.stack(channels, -1).astype(np.uint8)
        Image.fromarray(picture).save(folder / "preview" / f"{kind}.png")


def fill_table(folder: Path) -> None:
    synthetic_table(300, 0).save(folder / "table.npz")


def fill_pack(folder: Path) -> None:
    layout, rng = synthetic_table(300, 0).layout, np.random.default_rng(0)
    parts = [rng.integers(0, 300, 20_000)]
    parts += [layout.offsets[band] + rng.integers(0, 500, 4_000) for band in BANDS]
    np.concatenate(parts).astype("<u4").tofile(folder / "val.bin")
    kinds = {kind: {"train": 250_000 >> i, "val": 20_000 >> i} for i, kind in enumerate(KINDS)}
    packed = {"version": 1, "lanes": ["knowledge", "understanding"], "train": 468_750}
    packed |= {"val": 37_500, "table": "0" * 64, "val_every": 10, "kinds": kinds}
    (folder / "packed.json").write_text(json.dumps(packed))


def fill_smoke(folder: Path) -> None:
    names = ("no target outside its row set", "gradients finite", "loss falls", "alpha moved")
    checks = [{"name": n, "must": "≥ 1", "found": 1.9, "passed": True} for n in names]
    smoke = {"version": 1, "passed": True, "elapsed_s": 21.4, "checks": checks}
    (folder / "smoke.json").write_text(json.dumps(smoke))


def fill_speed(folder: Path) -> None:
    row = {"ctx_tokens": 512, "loops": 2, "step_s": 0.22, "tokens_per_s": 9301.0}
    speed = {"version": 1, "device": "cpu", "peak_bytes": 1_500_000_000}
    speed |= {"flops_utilisation_frac": 0.41, "shapes": [row, {**row, "loops": 4}]}
    (folder / "speed.json").write_text(json.dumps(speed))


def fill_export(folder: Path) -> None:
    export = {"version": 1, "file_bytes": 3_176_436, "bits_per_weight": 1.6016}
    export |= {"loops": 4, "tokens_per_s": {"float": 41.5, "int8": 52.5}, "samples": 2}
    (folder / "export.json").write_text(json.dumps(export))
    (folder / "samples").mkdir()
    Image.new("RGB", (130, 130), "red").save(folder / "samples" / "pictures.png")
    text = {"kind": "text", "begins": "The <b>", "data": "cat sat.", "model": "dog ran."}
    samples = [text, {"kind": "picture", "begins": "A cat.[gen_image]"}]
    (folder / "samples" / "samples.json").write_text(json.dumps(samples))


def build_chain(root: Path, **flat: Any) -> Chain:
    """Build every stage that a report reads; `flat` changes the control's metrics."""
    chain = Chain(root)
    kinds = {"text": 3_200_000, "picture": 410_000, "sound": 64_000, "clip": 71_000}
    chain.stage("sources", [], fill_sources, documents=14_022, seconds={"plan": 3.1}, tokens=kinds)
    figures = {"rows": {"language": 300, "image": 16_384}, "collisions": 0, "min_distance": 24}
    chain.stage("table", ["sources"], fill_table, **figures, rank_correlation=0.7813, build_s=9.2)
    chain.stage("remap", ["sources", "table"], lambda f: (f / "ids").write_text("x"), dropped=0)
    chain.stage("pack", ["remap", "table"], fill_pack)
    chain.stage("smoke", [], fill_smoke)
    chain.stage("speed", [], fill_speed)
    chain.stage("proof", ["table", "pack"], lambda f: _train(f, arm_metrics("proof")))
    control = arm_metrics("flat", **{"gain": 0.0, "flops_per_token": 2.1e7, **flat})
    chain.stage("flat", ["table", "pack"], lambda f: _train(f, control))
    chain.stage("export", ["proof", "table", "pack"], fill_export)
    return chain


def _train(folder: Path, records: list[dict[str, Any]]) -> None:
    write_metrics(folder, records)


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A finished chain whose looped core is ahead."""
    return build_chain(tmp_path_factory.mktemp("chain"))


@pytest.fixture(scope="session")
def metrics() -> Metrics:
    """Make the records of an arm."""
    return arm_metrics
