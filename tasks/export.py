"""Stage 6 goes on: the proof's model as one file, its speed here, samples beside the data's own."""

from collections.abc import Mapping
from typing import Any

from shadow_model.generate.config import ExportConfig
from shadow_model.generate.exhibit import build_export
from shadow_model.receipt import Receipt
from shadow_model.train.config import ArmConfig
from tasks.environment import machine_environment
from tasks.stage import Work, stage_task
from tasks.train import FINAL


@stage_task(
    "export",
    "6 export",
    modules=["shadow_model.generate.exhibit"],
    environment=machine_environment,
)
def export_proof(
    work: Work, proof: Receipt, table: Receipt, bins: Receipt, arm: ArmConfig, config: ExportConfig
) -> Mapping[str, Any]:
    """Write the looped model as one file, and what it generates from held-out beginnings."""
    weights = work.of(proof) / FINAL
    places = (weights, work.of(table), work.of(bins))
    return build_export(work.folder, *places, arm, config, work.progress)
