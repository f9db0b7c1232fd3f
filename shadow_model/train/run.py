"""Everything that one training run holds while it runs, restored from its work folder.

<work>/table.npz        the table, so that checkpoints can be read by themselves
<work>/metrics.jsonl    records
<work>/checkpoints/     see checkpoint.py
<work>/final/           weights that stay, once the run has ended
<work>/outcome.json     how it ended, written last
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shadow_model.data.bins import Bins, open_bins
from shadow_model.data.canonical import read_canonical
from shadow_model.data.windows import Windows, fixed_windows
from shadow_model.digest import sha256_file
from shadow_model.errors import CheckpointError, ConfigError
from shadow_model.nn.block import Block
from shadow_model.nn.memory_size import announce_training
from shadow_model.nn.model import Shadow
from shadow_model.nn.readout import Readout
from shadow_model.table.store import Table
from shadow_model.train.checkpoint import (
    TABLE,
    TrainingState,
    latest_checkpoint,
    link_table,
    load_tensors,
    read_checkpoint,
    read_state,
    save_checkpoint,
    tidy_checkpoints,
)
from shadow_model.train.clock import Clock
from shadow_model.train.config import ArmConfig, TrainConfig, TrainJob
from shadow_model.train.continuation import read_continuation
from shadow_model.train.device import Device, choose_device
from shadow_model.train.events import EventFiles
from shadow_model.train.feed import Feed
from shadow_model.train.flops import flops_until, mean_rows
from shadow_model.train.interval import Interval
from shadow_model.train.optim import (
    build_optimizer,
    optimizer_tensors,
    restore_optimizer,
    trained_parameters,
)
from shadow_model.train.row_bytes import read_row_bytes
from shadow_model.train.rowwise_adam import RowwiseAdam, memory_rows
from shadow_model.train.schedule import phase_at
from shadow_model.train.step import Learner, TokenBatch
from shadow_model.train.telemetry import Metrics, Record, console_line

METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"
_MAY_CHANGE = ("hours", "keep_checkpoints", "progress_every_s")
"""Fields that a resumed run may have changed: they decide when it stops, not what it computes."""
_log = logging.getLogger(__name__)


@dataclass
class Run:
    """The state of a run between two updates.

    Attributes:
        step: Updates done.
        logged_s: `clock.train_s` at the last log record.
        settled_records: Records that a resume from the present step keeps. Those of what comes
            before the next update (evaluations, growth) are written anew.
        rows: Rows that the readout scores for a token of the training bin, a mean.
        row_bytes: (num_lang,) int64 on the device, bytes that each language row spells, if known.
        table_sha256: Of the table's file.
    """

    job: TrainJob
    device: Device
    learner: Learner
    bins: Bins
    windows: Windows
    train_feed: Feed
    held_out_feed: Feed
    metrics: Metrics
    events: EventFiles
    interval: Interval
    clock: Clock
    rows: float
    row_bytes: Tensor | None
    table_sha256: str
    step: int = 0
    logged_s: float = 0.0
    settled_records: int = 0

    @property
    def config(self) -> TrainConfig:
        """How it trains."""
        return self.job.arm.train

    @property
    def tokens(self) -> int:
        """Tokens trained on."""
        return self.step * self.config.batch_tokens

    @property
    def flops(self) -> float:
        """Floating-point operations of the updates done, by formula."""
        return flops_until(self.job.arm, self.rows, self.step)

    def place(self) -> Record:
        """Return what every record says of where the run is."""
        return {
            "step": self.step,
            "tokens": self.tokens,
            "elapsed_s": round(self.clock.elapsed_s, 3),
            "flops": self.flops,
        }

    def record(self, event: str, **fields: Any) -> Record:
        """Write a record to the metrics, and its line to the log."""
        record = {"event": event, **self.place(), **fields}
        self.metrics.write(record)
        self.events.write(record)
        if line := console_line(record):
            _log.info("%s", line)
        return record

    def settle(self) -> None:
        """Say that all records so far belong to updates that are done."""
        self.settled_records = self.metrics.num_records

    def held_out_batches(self, tokens: int) -> Iterator[TokenBatch]:
        """Yield the fixed held-out windows of at most `tokens` tokens, on the device."""
        config, ctx = self.config, self.config.evaluate_ctx_tokens
        batch = max(1, config.batch_tokens // max(config.micro_batches_large, 1) // ctx)
        for windows in fixed_windows(self.bins.val, ctx, tokens // ctx, batch):
            yield self.held_out_feed.load(windows)

    def weights(self) -> dict[str, Any]:
        """Return what a folder of the present weights says of them."""
        arm = self.job.arm
        loops = phase_at(arm, max(0, self.step - 1)).loops
        return {
            "tag": arm.tag,
            "model": arm.model,
            "table_sha256": self.table_sha256,
            "loops": loops,
            "step": self.step,
            "tokens": self.tokens,
            "annealed": self.step == self.config.num_steps,
        }

    def save(self) -> Path:
        """Write a checkpoint; the run can go on from it as if never stopped.

        Raises:
            NumericsError: An update since the last record was not finite; nothing is saved.
        """
        interval = self.interval.state_dict()
        self.metrics.sync()
        state = TrainingState(
            **self.weights(),
            train=self.config,
            elapsed_s=self.clock.elapsed_s,
            train_s=self.clock.train_s,
            logged_s=self.logged_s,
            num_records=self.settled_records,
            windows=self.windows.state_dict(),
            interval=interval,
        )
        model = self.learner.model
        return save_checkpoint(
            self.job.work / CHECKPOINTS,
            model.state_dict(),
            optimizer_tensors(model, self.learner.optimizer) | self.learner.memory.tensors(),
            state,
            self.config.keep_checkpoints,
        )


def open_run(job: TrainJob) -> Run:
    """Build a run, or restore it from its last whole checkpoint.

    Raises:
        ConfigError: The data would be read more often than allowed, or the device is absent.
        DataError, LayoutError: Table or bins are unsound, or not of one another.
        CheckpointError: The work folder is of another run, or `job.reference` of another model.
    """
    config = job.arm.train
    device = choose_device(config.device, config.dtype, config.threads)
    longest = max(stage.ctx_tokens for stage in config.lengths)
    bins = open_bins(job.bins, job.table, max(longest, config.evaluate_ctx_tokens))
    _check_epochs(config, bins)
    job.work.mkdir(parents=True, exist_ok=True)
    link_table(job.table, job.work / TABLE)
    table = Table.load(job.table)
    check_same(job)
    canonical = read_canonical(job.table, table) if job.arm.model.num_memories else None
    learner = new_learner(job.arm, table, device, canonical)
    tidy_checkpoints(job.work / CHECKPOINTS, config.keep_checkpoints)
    newest = latest_checkpoint(job.work / CHECKPOINTS)
    checkpoint = read_checkpoint(newest) if newest else None
    state = checkpoint.state if checkpoint else None
    spelled = read_row_bytes(job.table, table)
    run = Run(
        job=job,
        device=device,
        learner=learner,
        bins=bins,
        windows=Windows(bins.train, config.seed, config.sampling, longest=longest),
        train_feed=Feed(bins.train, table.layout, device.device),
        held_out_feed=Feed(bins.val, table.layout, device.device),
        events=EventFiles(job.events, state.step if state else 0),
        metrics=Metrics(job.work / METRICS, state.num_records if state else 0),
        interval=Interval(learner.names, device.device),
        clock=Clock(state.elapsed_s, state.train_s) if state else Clock(),
        rows=mean_rows(table.layout, dict(bins.packed.kinds.get("train", {}))),
        row_bytes=None if spelled is None else torch.from_numpy(spelled).to(device.device),
        table_sha256=sha256_file(job.table),
    )
    if checkpoint and newest:
        load_tensors(learner.model, checkpoint.model, newest)
        restore_optimizer(learner.model, learner.optimizer, checkpoint.optimizer, newest)
        learner.memory.restore(checkpoint.optimizer, newest)
        run.windows.load_state_dict(checkpoint.state.windows)
        run.interval.load_state_dict(checkpoint.state.interval)
        run.step, run.logged_s = checkpoint.state.step, checkpoint.state.logged_s
        _log.info("resumed from %s", newest)
    elif job.reference is not None:
        _take_over(run, job.reference)
    return run


def _take_over(run: Run, path: Path) -> None:
    """Go on where a run of the reference program stopped."""
    model, optimizer = run.learner.model, run.learner.optimizer
    found = read_continuation(path, model, run.config)
    load_tensors(model, found.weights, path)
    restore_optimizer(model, optimizer, found.moments, path)
    run.windows.load_state_dict({**run.windows.state_dict(), "rng": found.generator})
    run.step, run.logged_s = found.step, found.elapsed_s
    run.clock = Clock(found.elapsed_s, found.elapsed_s)
    _log.info("goes on from %s after %d updates", path, run.step)


def new_learner(
    arm: ArmConfig, table: Table, device: Device, canonical: np.ndarray | None = None
) -> Learner:
    """Build model, readout and optimisers, with first weights drawn from the run's seed.

    Args:
        canonical: (R,) int64, canonical ids of the table's rows, for memories of n-grams.

    Raises:
        ConfigError: The memories do not fit into the device's memory.
    """
    config = arm.train
    announce_training(arm.model, device.device)
    model = Shadow(arm.model, table, config.seed, canonical).to(device.device).train()
    if config.compile:
        for module in model.modules():
            if isinstance(module, Block):
                module.compile()
    readout = Readout(table).to(device.device)
    trained: list[nn.Parameter] = [parameter for _, parameter in trained_parameters(model)]
    memory = RowwiseAdam(memory_rows(model), config.betas, config.eps)
    optimizer = build_optimizer(model, config)
    return Learner(model, readout, optimizer, trained, config, device, memory)


def _check_epochs(config: TrainConfig, bins: Bins) -> None:
    epochs = config.tokens / bins.train.num_tokens
    if epochs > config.max_epochs:
        raise ConfigError(
            "train.tokens",
            f"mean at most {config.max_epochs:g} epochs of {bins.train.path}",
            f"{config.tokens} tokens, {epochs:.1f} epochs of {bins.train.num_tokens}",
            "Pack more data, train on fewer tokens, or raise train.max_epochs.",
        )


def check_same(job: TrainJob) -> None:
    """Check that a work folder's checkpoint, where there is one, is of the same run.

    Raises:
        CheckpointError: It is of another table, model or training config.
    """
    path = latest_checkpoint(job.work / CHECKPOINTS)
    if path is None:
        return
    state, arm = read_state(path), job.arm
    pairs: Mapping[str, tuple[Any, Any]] = {
        "table": (state.table_sha256, sha256_file(job.table)),
        "model": (state.model.key_fields(), arm.model.key_fields()),
        "train": (_fixed(state.train), _fixed(arm.train)),
    }
    for name, (found, expected) in pairs.items():
        if found != expected:
            must = f"be of this run's {name}: {expected}"
            fix = "Give the run its own work folder, or go back to the old config."
            raise CheckpointError(path, must, found, fix)


def _fixed(config: TrainConfig) -> dict[str, Any]:
    return {k: v for k, v in config.key_fields().items() if k not in _MAY_CHANGE}
