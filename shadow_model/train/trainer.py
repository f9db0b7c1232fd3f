"""The training loop: phase, batch, update, record, evaluate, save.

What is due at a step depends on the step alone, and the held-out evaluation of a step comes after
its checkpoint: a run cut anywhere repeats from its last checkpoint what it had not yet saved, with
the same records and, on a CPU, the same bits.
"""

import json
import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from shadow_model.data.windows import fixed_starts
from shadow_model.progress import Progress, silent
from shadow_model.store import write_whole
from shadow_model.train.checkpoint import TABLE, Weights, save_weights
from shadow_model.train.config import TrainJob
from shadow_model.train.evaluate import HeldOut, evaluate, summarise
from shadow_model.train.run import Run, check_same, open_run
from shadow_model.train.schedule import Phase, final_loops, lr_at, phase_at
from shadow_model.train.step import update

__all__ = ["TrainJob", "train"]
FINAL, HELD_OUT, OUTCOME = "final", "heldout.npz", "outcome.json"
_log = logging.getLogger(__name__)
Stop = Callable[[], bool]


def never() -> bool:
    """Do not stop."""
    return False


class _StopAskedError(Exception):
    """Someone asked to stop."""


def train(job: TrainJob, progress: Progress = silent, stop: Stop = never) -> dict[str, Any]:
    """Train one arm to its end, or until asked to stop; go on where an earlier call left off.

    Args:
        job: The arm, its inputs and its work folder.
        progress: Told of updates done.
        stop: Asked between updates; once true the run is saved and left.

    Returns:
        The final record, with `status`: "done"; "budget" where the hours ran out, so that the
        weights are not annealed; or "stopped" (start again to go on).

    Raises:
        NumericsError: A loss or gradient was not finite. The last checkpoint is from before it.
        ConfigError, DataError, LayoutError, CheckpointError: As `open_run`.
    """
    if (ended := _ended(job)) is not None:
        _log.info("%s has ended already (%s): nothing to do", job.arm.tag, ended["status"])
        return ended
    run = open_run(job)
    with closing(run.metrics), closing(run.events):
        try:
            return _loop(run, progress, stop)
        except _StopAskedError:
            with run.clock.aside():
                _log.info("stopped at step %d, saved in %s", run.step, run.save())
            return {"event": "stopped", "status": "stopped", **run.place()}


def _loop(run: Run, progress: Progress, stop: Stop) -> dict[str, Any]:
    config, num_steps, what = run.config, run.config.num_steps, run.job.arm.tag

    def listen(done: str = "") -> None:
        progress(run.step, num_steps, f"{what}{done}")
        if stop():
            raise _StopAskedError

    if run.metrics.num_records == 0:
        _record_start(run)
    while run.step < num_steps:
        run.settle()
        listen(_shown(run))
        if _out_of_time(run):
            return _finish(run, "budget", listen)
        phase = _begin_step(run, listen)
        batch = run.windows.next(phase.ctx_tokens, config.batch_tokens // phase.ctx_tokens)
        stats = update(run.learner, run.train_feed.load(batch), phase, run.step)
        run.interval.add(stats, run.step, batch.starts, config.batch_tokens)
        if run.device.device.type == "cpu":  # nothing to wait for
            run.interval.check()
        run.step += 1
        if run.step % config.log_every_steps == 0 or run.step == num_steps:
            _record_interval(run, phase)
        if run.step % config.checkpoint_every_steps == 0 or run.step == num_steps:
            run.settle()
            with run.clock.aside():
                run.save()
    return _finish(run, "done", listen)


Listen = Callable[[str], None]


def _begin_step(run: Run, listen: Listen) -> Phase:
    """Do what comes before an update: records of a new phase, growth, due evaluations."""
    arm, step, config = run.job.arm, run.step, run.config
    phase = phase_at(arm, step)
    before = phase_at(arm, step - 1) if step else None
    final = final_loops(arm) if config.evaluate_final_loops else phase.loops
    if before and before.loops != phase.loops:
        _evaluate(run, "before growth", [before.loops], config.evaluate_final_tokens, listen)
        if config.copy_alpha:
            run.learner.model.grow(before.loops, phase.loops)
            run.learner.model.refresh()
        run.record("growth", from_loops=before.loops, loops=phase.loops)
        _evaluate(run, "growth", [phase.loops], config.evaluate_final_tokens, listen)
    elif step % config.evaluate_every_steps == 0:
        _evaluate(
            run,
            "periodic" if step else "start",
            sorted({phase.loops, final}),
            config.evaluate_tokens,
            listen,
        )
    if phase != before:
        run.record("phase", **phase._asdict(), lr=lr_at(config, step, bool(arm.model.flat)))
    return phase


def _record_start(run: Run) -> None:
    model, config = run.learner.model, run.config
    run.record(
        "start",
        tag=run.job.arm.tag,
        seed=config.seed,
        parameters=sum(p.numel() for p in model.parameters()),
        num_steps=config.num_steps,
        epochs=round(config.tokens / run.bins.train.num_tokens, 4),
        rows_scored=run.rows,
        **run.device.describe(),
    )


def _record_interval(run: Run, phase: Phase) -> None:
    means = run.interval.take()
    seconds = max(run.clock.train_s - run.logged_s, 1e-9)
    run.logged_s = run.clock.train_s
    run.record(
        "log",
        ctx_tokens=phase.ctx_tokens,
        loops=phase.loops,
        sparse=phase.sparse,
        lr=lr_at(run.config, run.step - 1, bool(run.job.arm.model.flat)),
        loss=means.loss,
        index_kl=means.index_kl,
        kinds=means.kinds,
        dropped=means.dropped,
        gradient_norm=means.gradient_norm,
        tokens_per_s=round(means.tokens / seconds, 2),
    )


def _evaluate(run: Run, why: str, loops: list[int], tokens: int, listen: Listen) -> HeldOut:
    """Evaluate with each loop count; the record of the first comes first."""
    config, ctx = run.config, run.config.evaluate_ctx_tokens
    sparse = ctx >= config.sparse_from_ctx_tokens
    learner = run.learner
    run.interval.check()
    for count in loops:
        with run.clock.aside():
            held_out = evaluate(
                learner.model,
                learner.readout,
                run.held_out_batches(tokens),
                loops=count,
                sparse=sparse,
                device=run.device,
                row_bytes=run.row_bytes,
                after_batch=lambda done: listen(f", {done} held-out windows"),
            )
        figures = summarise(held_out)
        run.record("evaluate", why=why, ctx_tokens=ctx, loops=count, sparse=sparse, **figures)
    return held_out


def _finish(run: Run, status: str, listen: Listen) -> dict[str, Any]:
    """Evaluate for the last time, write the weights that stay, and how the run ended."""
    work, config = run.job.work, run.config
    run.settle()
    if status == "budget":
        with run.clock.aside():
            run.save()
    weights = Weights(**run.weights())
    held_out = _evaluate(run, "final", [weights.loops], config.evaluate_final_tokens, listen)
    folder = work / FINAL
    save_weights(folder, run.learner.model.state_dict(), weights, work / TABLE)
    run.learner.model.export_memories(folder)
    _save_held_out(run, held_out, folder / HELD_OUT)
    final = run.record(
        "final",
        status=status,
        annealed=weights.annealed,
        loops=weights.loops,
        parameters=sum(p.numel() for p in run.learner.model.parameters()),
        train_s=round(run.clock.train_s, 3),
        tokens_per_s=round(run.tokens / max(run.clock.train_s, 1e-9), 2),
        peak_bytes=run.device.peak_bytes(),
        **run.device.describe(),
    )
    run.metrics.sync()
    write_whole(work / OUTCOME, json.dumps(final, indent=1).encode())
    return final


def _save_held_out(run: Run, held_out: HeldOut, path: Path) -> None:
    """Keep every window's losses: two runs on the same windows can be compared in pairs."""
    ctx = run.config.evaluate_ctx_tokens
    starts = fixed_starts(run.bins.val.num_tokens, ctx, len(held_out.sums))
    arrays: dict[str, Any] = {
        n: a for n, a in held_out._asdict().items() if isinstance(a, np.ndarray)
    }
    np.savez(path, starts=starts, ctx_tokens=ctx, **arrays)


def _ended(job: TrainJob) -> dict[str, Any] | None:
    path = job.work / OUTCOME
    if not path.is_file():
        return None
    outcome: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    check_same(job)
    hours = job.arm.train.hours
    if outcome["status"] == "budget" and (hours is None or outcome["elapsed_s"] < hours * 3600):
        return None
    return outcome


def _out_of_time(run: Run) -> bool:
    hours = run.config.hours
    return hours is not None and run.clock.elapsed_s >= hours * 3600


def _shown(run: Run) -> str:
    return f", {run.tokens:,} tokens"
