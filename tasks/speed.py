"""Stage 5: how fast a training step is here."""

from collections.abc import Mapping
from typing import Any

from shadow_model.nn.config import ModelConfig
from shadow_model.speed import SpeedConfig, run_speed
from tasks.environment import gpu, machine_environment
from tasks.memory import naming_memory
from tasks.results import write_figures
from tasks.stage import Work, stage_task


@stage_task(
    "speed",
    "5 speed bench",
    modules=["shadow_model.speed"],
    environment=machine_environment,
    device=lambda inputs: gpu(inputs["config"].device),
)
def measure_speed(work: Work, config: SpeedConfig, model: ModelConfig) -> Mapping[str, Any]:
    """Time full training steps on random ids: tokens/s, memory, utilisation."""
    with naming_memory(f"raise speed.micro_batches above {config.micro_batches}"):
        figures = run_speed(config, model, work.progress)
    return write_figures(work.folder / "speed.json", figures)
