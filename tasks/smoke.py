"""Stage 4: does every part of the model do what it must, on synthetic spans."""

from collections.abc import Mapping
from typing import Any

from prefect import get_run_logger

from shadow_model.smoke import SmokeConfig, run_smoke
from tasks.environment import gpu, torch_environment
from tasks.memory import naming_memory
from tasks.results import write_figures
from tasks.stage import Work, stage_task


@stage_task(
    "smoke",
    "4 smoke check",
    modules=["shadow_model.smoke"],
    environment=torch_environment,
    device=lambda inputs: gpu(inputs["config"].device),
)
def check_model(work: Work, config: SmokeConfig) -> Mapping[str, Any]:
    """Train 30 steps on a synthetic table and check losses, gradients and levels."""
    with naming_memory("run it on another device: smoke.device"):
        figures = run_smoke(config, work.progress)
    for row in figures["rows"]:
        get_run_logger().info("%-28s %s: %s", row["name"], row["must"], row["found"])
    return write_figures(work.folder / "smoke.json", figures)
