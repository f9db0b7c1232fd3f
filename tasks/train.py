"""Stages 6 and 7: train the looped proof and its flat control, in a child process.

The work folder is keyed as the stage is: an attempt that follows a killed one goes on from the last
whole checkpoint there.
"""

import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from prefect import get_run_logger

from shadow_model.errors import ShadowError
from shadow_model.progress import Progress
from shadow_model.receipt import Receipt
from shadow_model.train.config import ArmConfig
from shadow_model.train.main import BAD_INPUT, PROGRESS_PREFIX
from shadow_model.train.telemetry import read_metrics
from shadow_model.train.trainer import TrainJob
from tasks.child import ChildDiedError, checked_child
from tasks.environment import torch_environment
from tasks.stage import Work, stage_task

METRICS = "metrics.jsonl"
FINAL = "final"
_MODULES = ["shadow_model.train.main"]


def train_arm(work: Work, table: Receipt, bins: Receipt, arm: ArmConfig) -> Mapping[str, Any]:
    """Train one arm on the bins; an attempt after a killed one resumes."""
    folder = work.resumable()
    table_path = work.of(table) / "table.npz"
    job = TrainJob(arm=arm, table=table_path, bins=work.of(bins), work=folder)
    job_path = folder / "job.json"
    job_path.write_text(job.model_dump_json(), encoding="utf-8")
    run_trainer([sys.executable, "-m", "shadow_model.train.main", str(job_path)], work.progress)
    return _collect(folder, work.folder)


train_proof = stage_task("proof", "6 train proof", _MODULES, torch_environment)(train_arm)
train_flat = stage_task("flat", "7 train flat", _MODULES, torch_environment)(train_arm)


def run_trainer(command: list[str], progress: Progress) -> None:
    """Run the training process; its lines go to the run's log, its progress to `progress`.

    Raises:
        ShadowError: It refused its input.
        ChildDiedError: It was killed, or stopped after saving.
    """
    try:
        checked_child(command, _listener(get_run_logger(), progress))
    except ChildDiedError as error:
        if error.code != BAD_INPUT:
            raise
        raise ShadowError(
            "training", "be given sound input", error.tail[-1], "See the lines above it."
        ) from error


def _listener(
    logger: logging.Logger | logging.LoggerAdapter[logging.Logger], progress: Progress
) -> Callable[[str], None]:
    def listen(line: str) -> None:
        if line.startswith(PROGRESS_PREFIX):
            progress(**json.loads(line.removeprefix(PROGRESS_PREFIX)))
        else:
            logger.info("%s", line)

    return listen


def _collect(work: Path, out: Path) -> Mapping[str, Any]:
    (out / METRICS).hardlink_to(work / METRICS)
    shutil.copytree(work / FINAL, out / FINAL, copy_function=os.link)
    records = read_metrics(out / METRICS)
    (final,) = (r for r in records if r["event"] == "final")
    held_out = [r for r in records if r["event"] == "evaluate"][-1]
    losses = {kind: value["loss"] for kind, value in held_out["kinds"].items()}
    figures = {key: held_out[key] for key in ("loss", "standard_error")}
    ended = {key: value for key, value in final.items() if key != "event"}
    return {**ended, "held_out": {**figures, **losses}}
