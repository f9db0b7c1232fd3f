"""Stages 6 and 7: train the looped proof, its flat control and further arms, in a child process.

The work folder outlives an attempt: the next goes on from the last whole checkpoint there, also
when only the hours that it may take have changed.
"""

import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from prefect import get_run_logger

from shadow_model.data.bins import PACKED, read_packed
from shadow_model.errors import ShadowError
from shadow_model.hub.card import place_of
from shadow_model.progress import Progress
from shadow_model.receipt import Receipt
from shadow_model.report.live import write_live
from shadow_model.table.store import Table
from shadow_model.train.config import ArmConfig
from shadow_model.train.flops import match_flops, mean_rows
from shadow_model.train.main import BAD_INPUT, IO_FAULT, OUT_OF_MEMORY, PROGRESS_PREFIX, STOPPED
from shadow_model.train.run import CHECKPOINTS
from shadow_model.train.telemetry import HELD_OUT, read_metrics
from shadow_model.train.trainer import TrainJob
from tasks.child import ChildDiedError, checked_child
from tasks.environment import gpu, torch_environment
from tasks.pushing import pushed
from tasks.stage import DeviceMemoryError, Resuming, Work, stage_task

METRICS = "metrics.jsonl"
FINAL = "final"


class TrainerFailedError(RuntimeError):
    """The training process failed for a reason of its own; it is not tried again."""


def train_arm(work: Work, table: Receipt, bins: Receipt, arm: ArmConfig) -> Mapping[str, Any]:
    """Train one arm on the bins; an attempt after a killed one resumes."""
    folder = work.resumable
    assert folder is not None
    table_path = work.of(table) / "table.npz"
    name = f"{arm.tag}-seed{arm.train.seed}-{work.identity.key[:8]}"
    events, page = work.store.root / "tensorboard" / name, work.store.root / "live" / f"{name}.html"
    job = TrainJob(arm=arm, table=table_path, bins=work.of(bins), work=folder, events=events)
    job_path = folder / "job.json"
    job_path.write_text(job.model_dump_json(), encoding="utf-8")
    get_run_logger().info("a page to watch it by, from the first evaluation on: %s", page)
    with pushed(work.hub, folder, place_of(arm.tag, arm.train.seed)) as offer:

        def evaluated() -> None:
            _refresh(folder, work.identity.stage, page)
            offer()

        command = [sys.executable, "-m", "shadow_model.train.main", str(job_path)]
        run_trainer(command, work.progress, evaluated, folder / "run.log")
    _refresh(folder, work.identity.stage, page)
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


def _ran_out_of_hours(figures: Mapping[str, Any]) -> bool:
    return bool(figures["status"] == "budget")


_options = partial(
    stage_task,
    modules=["shadow_model.train.main"],
    environment=torch_environment,
    device=_gpu,
    resuming=Resuming(f"{CHECKPOINTS}/step_*", (("arm", "train", "hours"),), _ran_out_of_hours),
)
train_proof = _options("proof", "6 train proof")(train_arm)
train_flat = _options("flat", "7 train flat")(train_arm)
train_further = _options("arm", "7 train arm")(train_arm)
train_matched = _options("matched", "7 train matched")(train_matched_arm)


def _refresh(folder: Path, stage: str, page: Path) -> None:
    """Write the page of a run under way; it is not worth a training."""
    try:
        write_live(folder, stage, page)
    except (ShadowError, OSError) as error:
        get_run_logger().warning("%s was not written: %s", page, error)


def _nothing() -> None:
    return None


def run_trainer(
    command: list[str],
    progress: Progress,
    evaluated: Callable[[], None] = _nothing,
    log: Path | None = None,
) -> None:
    """Run the training process; its lines go to the run's log, its progress to `progress`.

    Args:
        command: What to run.
        progress: Told of updates done.
        evaluated: Called after each held-out evaluation.
        log: File that the lines go to, too.

    Raises:
        ShadowError: It refused its input, or found the disk full.
        DeviceMemoryError: It ran out of memory.
        ChildDiedError: It was killed, stopped after saving, or had an I/O error that may pass.
        TrainerFailedError: It failed for another reason, as it would again.
    """
    try:
        checked_child(command, _listener(get_run_logger(), progress, evaluated, log))
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
    logger: logging.Logger | logging.LoggerAdapter[logging.Logger],
    progress: Progress,
    evaluated: Callable[[], None],
    log: Path | None,
) -> Callable[[str], None]:
    def listen(line: str) -> None:
        if line.startswith(PROGRESS_PREFIX):
            progress(**json.loads(line.removeprefix(PROGRESS_PREFIX)))
        else:
            logger.info("%s", line)
            if log is not None:
                with log.open("a", encoding="utf-8") as file:
                    file.write(f"{line}\n")
            if line.startswith(HELD_OUT):
                evaluated()

    return listen


def _collect(work: Path, out: Path) -> Mapping[str, Any]:
    """Take over what stays of a run; a run that may go on keeps files of its own."""
    (final,) = (r for r in read_metrics(work / METRICS) if r["event"] == "final")
    take = shutil.copyfile if _ran_out_of_hours(final) else os.link
    take(work / METRICS, out / METRICS)
    shutil.copytree(work / FINAL, out / FINAL, copy_function=take)
    held_out = [r for r in read_metrics(out / METRICS) if r["event"] == "evaluate"][-1]
    losses = {kind: value["loss"] for kind, value in held_out["kinds"].items()}
    figures = {key: held_out[key] for key in ("loss", "standard_error")}
    ended = {key: value for key, value in final.items() if key != "event"}
    return {**ended, "held_out": {**figures, **losses}}
