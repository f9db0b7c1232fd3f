"""Stages 6 and 7: train the looped proof, its flat control and further arms, in a child process.

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

from shadow_model.data.bins import PACKED, read_packed
from shadow_model.errors import ShadowError
from shadow_model.progress import Progress
from shadow_model.receipt import Receipt
from shadow_model.table.store import Table
from shadow_model.train.config import ArmConfig
from shadow_model.train.flops import match_flops, mean_rows
from shadow_model.train.main import BAD_INPUT, IO_FAULT, OUT_OF_MEMORY, PROGRESS_PREFIX, STOPPED
from shadow_model.train.telemetry import read_metrics
from shadow_model.train.trainer import TrainJob
from tasks.child import ChildDiedError, checked_child
from tasks.environment import gpu, torch_environment
from tasks.stage import DeviceMemoryError, Work, stage_task

METRICS = "metrics.jsonl"
FINAL = "final"
_MODULES = ["shadow_model.train.main"]


class TrainerFailedError(RuntimeError):
    """The training process failed for a reason of its own; it is not tried again."""


def train_arm(work: Work, table: Receipt, bins: Receipt, arm: ArmConfig) -> Mapping[str, Any]:
    """Train one arm on the bins; an attempt after a killed one resumes."""
    folder = work.resumable()
    table_path = work.of(table) / "table.npz"
    job = TrainJob(arm=arm, table=table_path, bins=work.of(bins), work=folder)
    job_path = folder / "job.json"
    job_path.write_text(job.model_dump_json(), encoding="utf-8")
    run_trainer([sys.executable, "-m", "shadow_model.train.main", str(job_path)], work.progress)
    return _collect(folder, work.folder)


def train_matched_arm(
    work: Work, table: Receipt, bins: Receipt, arm: ArmConfig, like: ArmConfig
) -> Mapping[str, Any]:
    """Train an arm for as many FLOPs as another; an attempt after a killed one resumes."""
    found = Table.load(work.of(table) / "table.npz").layout
    kinds = read_packed(work.of(bins) / PACKED).kinds
    rows = mean_rows(found, dict(kinds.get("train", {})))
    return train_arm(work, table, bins, match_flops(arm, like, rows))


def _gpu(inputs: Mapping[str, Any]) -> str | None:
    return gpu(inputs["arm"].train.device)


train_proof = stage_task("proof", "6 train proof", _MODULES, torch_environment, _gpu)(train_arm)
train_flat = stage_task("flat", "7 train flat", _MODULES, torch_environment, _gpu)(train_arm)
train_further = stage_task("arm", "7 train arm", _MODULES, torch_environment, _gpu)(train_arm)
train_matched = stage_task("matched", "7 train matched", _MODULES, torch_environment, _gpu)(
    train_matched_arm
)


def run_trainer(command: list[str], progress: Progress) -> None:
    """Run the training process; its lines go to the run's log, its progress to `progress`.

    Raises:
        ShadowError: It refused its input, or found the disk full.
        DeviceMemoryError: It ran out of memory.
        ChildDiedError: It was killed, stopped after saving, or had an I/O error that may pass.
        TrainerFailedError: It failed for another reason, as it would again.
    """
    try:
        checked_child(command, _listener(get_run_logger(), progress))
    except ChildDiedError as error:
        if cause := _cause(error):
            raise cause from error
        raise


def _cause(error: ChildDiedError) -> Exception | None:
    if error.code == BAD_INPUT:
        fix = "See the lines above it."
        return ShadowError("training", "be given sound input", error.tail[-1], fix)
    if error.code == OUT_OF_MEMORY:
        return DeviceMemoryError(error.tail[-1])
    if error.code < 0 or error.code in (STOPPED, IO_FAULT):
        return None
    return TrainerFailedError(str(error))


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
