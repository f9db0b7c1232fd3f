"""Stage 5: how fast a full training step is here, and how far from what the device can do.

A step is forward, backward, clipping and optimiser on random ids. Its operations come from the
formula of `train/flops.py`; the ceiling is a plain matrix product, measured on the same device with
the same dtype and threads just before. Run alone: `python -m shadow_model.speed --help`.
"""

import statistics
import time
from collections.abc import Callable
from typing import Annotated, Any

import torch
import typer
from pydantic import Field, model_validator
from rich.console import Console
from rich.table import Table as RichTable

from shadow_model.nn.config import ModelConfig
from shadow_model.progress import Progress, silent
from shadow_model.schema import Schema
from shadow_model.table.layout import KINDS, Layout
from shadow_model.table.synthetic import synthetic_table
from shadow_model.train.config import ArmConfig, LengthStage, TrainConfig
from shadow_model.train.device import Device, DeviceName, DtypeName, choose_device
from shadow_model.train.flops import flops_per_token, mean_rows
from shadow_model.train.run import new_learner
from shadow_model.train.schedule import Phase
from shadow_model.train.step import TokenBatch, update

_CEILING_SIZE = {"cpu": 1536, "cuda": 8192}
_CEILING_TRIES = 8
_STEPS_IN_SCHEDULE = 1000


class SpeedConfig(Schema):
    """Shapes of the measured step."""

    num_lang: int = Field(65_536, ge=64, le=1 << 20, description="language rows of the table")
    windows: int = Field(16, ge=1, le=65_536, description="windows of a batch")
    ctx_tokens: int = Field(2048, ge=8, le=1 << 20, description="tokens of a window")
    loops: int = Field(4, ge=1, le=64, description="passes over the core")
    sparse: bool = Field(False, description="attention reads the chosen blocks only")
    micro_batches: int = Field(1, ge=1, le=65_536, description="parts of a batch")
    warmup_steps: int = Field(4, ge=1, le=10_000, description="steps before the clock runs")
    timed_steps: int = Field(8, ge=2, le=10_000, description="steps measured")
    device: DeviceName = Field("auto", description="auto: CUDA where it is")
    dtype: DtypeName = Field("auto", description="of matrix products; auto: bfloat16 on CUDA")
    threads: int | None = Field(None, ge=1, le=1024, description="CPU threads; null: torch's own")
    compile: bool = Field(False, description="compile the blocks")
    seed: int = Field(0, ge=0, lt=1 << 31, description="of ids and weights")

    @model_validator(mode="after")
    def _check_parts(self) -> "SpeedConfig":
        if self.micro_batches > self.windows:
            raise ValueError(
                f"micro_batches {self.micro_batches} of {self.windows} windows: one would be empty"
            )
        return self


def run_speed(
    config: SpeedConfig, model: ModelConfig, progress: Progress = silent
) -> dict[str, Any]:
    """Measure.

    Args:
        config: Shapes.
        model: Of either body.
        progress: Told of steps done, warm-up included.

    Returns:
        tokens_per_s, step_ms_median, step_ms_spread (largest less smallest), peak_bytes,
        flops_per_token, flops_per_s, ceiling_flops_per_s, utilisation, and what was measured.

    Raises:
        ConfigError: The device is absent, or the model has too few alphas for the loops.
    """
    device = choose_device(config.device, config.dtype, config.threads)
    ceiling = measure_ceiling(device)
    device.reset_peak()
    step = _prepare(config, model, device)
    times = _time_steps(config, step, device, progress)
    tokens = config.windows * config.ctx_tokens
    median = statistics.median(times)
    per_token = flops_per_token(
        model, config.ctx_tokens, config.loops, _text_rows(config), config.sparse
    )
    rate = per_token * tokens / median
    return {
        "tokens_per_s": round(tokens / median, 1),
        "step_ms_median": round(1e3 * median, 2),
        "step_ms_spread": round(1e3 * (max(times) - min(times)), 2),
        "peak_bytes": device.peak_bytes(),
        "flops_per_token": per_token,
        "flops_per_s": rate,
        "ceiling_flops_per_s": ceiling,
        "utilisation": round(rate / ceiling, 4),
        "windows": config.windows,
        "ctx_tokens": config.ctx_tokens,
        "loops": 1 if model.flat else config.loops,
        "sparse": config.sparse,
        "timed_steps": config.timed_steps,
        **device.describe(),
    }


def measure_ceiling(device: Device) -> float:
    """Return the operations a second of a plain square matrix product, the best of a few."""
    size = _CEILING_SIZE[device.device.type]
    left = torch.randn(size, size, device=device.device, dtype=device.dtype)
    right = torch.randn(size, size, device=device.device, dtype=device.dtype)

    def multiply() -> None:
        torch.mm(left, right)

    multiply()
    best = min(_seconds(multiply, device) for _ in range(_CEILING_TRIES))
    return 2 * size**3 / best


def _prepare(config: SpeedConfig, model: ModelConfig, device: Device) -> Callable[[int], None]:
    """Return a function that does the update of a given number."""
    table = synthetic_table(config.num_lang, config.seed)
    arm = ArmConfig.parse({"tag": "speed", "model": model, "train": _train_config(config)}, "speed")
    learner = new_learner(arm, table, device)
    phase = Phase(config.ctx_tokens, config.loops, config.sparse, config.micro_batches)
    generator = torch.Generator().manual_seed(config.seed)

    def step(number: int) -> None:
        shape = (config.windows, config.ctx_tokens + 1)
        ids = torch.randint(config.num_lang, shape, generator=generator).to(device.device)
        update(learner, TokenBatch(ids[:, :-1], ids[:, 1:], None), phase, number)

    return step


def _train_config(config: SpeedConfig) -> TrainConfig:
    batch_tokens = config.windows * config.ctx_tokens
    return TrainConfig(
        tokens=_STEPS_IN_SCHEDULE * batch_tokens,
        batch_tokens=batch_tokens,
        lengths=(LengthStage(from_frac=0.0, ctx_tokens=config.ctx_tokens),),
        micro_batches_large=config.micro_batches,
        loops=(config.loops, config.loops),
        compile=config.compile,
        seed=config.seed,
    )


def _time_steps(
    config: SpeedConfig, step: Callable[[int], None], device: Device, progress: Progress
) -> list[float]:
    total, times = config.warmup_steps + config.timed_steps, []
    for number in range(total):
        progress(number, total, "speed: steps")
        seconds = _seconds(lambda n=number: step(n), device)  # type: ignore[misc]
        if number >= config.warmup_steps:
            times.append(seconds)
    progress(total, total, "speed: steps")
    return times


def _seconds(work: Callable[[], None], device: Device) -> float:
    device.synchronise()
    began = time.perf_counter()
    work()
    device.synchronise()
    return time.perf_counter() - began


def _text_rows(config: SpeedConfig) -> float:
    return mean_rows(Layout(num_lang=config.num_lang), {KINDS[0]: 1})


def main(
    width: Annotated[int, typer.Option(help="width of the model")] = 512,
    heads: Annotated[int, typer.Option(help="query heads")] = 8,
    prelude: Annotated[int, typer.Option(help="blocks before the loop")] = 2,
    core: Annotated[int, typer.Option(help="blocks of the loop")] = 6,
    coda: Annotated[int, typer.Option(help="blocks after the loop")] = 2,
    flat: Annotated[int, typer.Option(help="untied blocks of a flat model; 0: looped")] = 0,
    loops: Annotated[int, typer.Option(help="passes over the core")] = 4,
    ctx: Annotated[int, typer.Option(help="tokens of a window")] = 2048,
    windows: Annotated[int, typer.Option(help="windows of a batch")] = 16,
    micro_batches: Annotated[int, typer.Option(help="parts of a batch")] = 1,
    rows: Annotated[int, typer.Option(help="language rows")] = 65_536,
    sparse: Annotated[bool, typer.Option(help="block-sparse attention")] = False,
    steps: Annotated[int, typer.Option(help="steps measured")] = 8,
    warmup: Annotated[int, typer.Option(help="steps before the clock runs")] = 4,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16")] = "auto",
    threads: Annotated[int | None, typer.Option(help="CPU threads")] = None,
    compiled: Annotated[bool, typer.Option("--compile", help="compile the blocks")] = False,
) -> None:
    """Time full training steps on random ids, and print the figures as a table."""
    shape = {"width": width, "heads": heads, "prelude": prelude, "core": core, "coda": coda}
    model = ModelConfig.parse({**shape, "flat": flat}, "options")
    fields = {
        "num_lang": rows,
        "windows": windows,
        "ctx_tokens": ctx,
        "loops": loops,
        "sparse": sparse,
        "micro_batches": micro_batches,
        "warmup_steps": warmup,
        "timed_steps": steps,
        "device": device,
        "dtype": dtype,
        "threads": threads,
        "compile": compiled,
    }
    figures = run_speed(SpeedConfig.parse(fields, "options"), model)
    shown = RichTable("figure", "value", title="speed")
    for name, value in figures.items():
        shown.add_row(name, f"{value:,.4g}" if isinstance(value, float) else f"{value}")
    Console().print(shown)


app = typer.Typer(add_completion=False)
app.command()(main)

if __name__ == "__main__":
    app()
