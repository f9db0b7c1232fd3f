"""What the tasks of all stages have in common: identity, cache, receipt, artifact, retries.

`@stage_task` turns a function that builds one stage's outputs,

    def build(work: Work, *earlier receipts and configs) -> figures

into a Prefect task that takes the same arguments without `work` and returns the stage's receipt.
The identity is computed from the arguments in one place, for the cache key and for the build.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec
from uuid import uuid4

from prefect import Task, get_run_logger, runtime
from prefect.client.schemas.objects import State, TaskRun

from shadow_model.errors import ShadowError
from shadow_model.hub.config import HubConfig
from shadow_model.progress import Progress
from shadow_model.receipt import Identity, Receipt
from shadow_model.store import Store
from shadow_model.transient import is_transient
from shadow_model.unfinished import Unfinished
from tasks.artifacts import publish_receipt
from tasks.caching import LOCKS, cache_options
from tasks.device import alone_on
from tasks.locks import FlockLockManager
from tasks.progress import RunProgress

P = ParamSpec("P")
_PACKAGE = __name__.partition(".")[0]

RETRY_DELAYS_S = (2.0, 10.0, 60.0)


class InterruptedWorkError(RuntimeError):
    """Work that ended for a reason outside of it, and may pass when tried again."""


class DeviceMemoryError(InterruptedWorkError):
    """The device had no memory left: tried once more, for another program may have held it.

    Args:
        advice: Which field of the config would need less.
    """

    def __init__(self, advice: str) -> None:
        super().__init__(f"the device ran out of memory. If nothing else uses it, {advice}")


@dataclass(frozen=True)
class Work:
    """What a stage's function gets: where to write, how to tell its progress, earlier outputs.

    Args:
        resumable: Of a stage that resumes: a folder that outlives a failed attempt.
        hub: Where work under way may be pushed to.
    """

    store: Store
    identity: Identity
    folder: Path
    progress: Progress
    resumable: Path | None = None
    hub: HubConfig | None = None

    def of(self, receipt: Receipt) -> Path:
        """Return the folder of an earlier stage's outputs."""
        return self.store.folder(receipt)


class Resuming(NamedTuple):
    """How a stage goes on where an earlier attempt stopped.

    Attributes:
        worth: Pattern of what would be lost if it began again.
        free: Paths of config fields that may change from attempt to attempt.
        goes_on: Figures -> whether a later run, with other such fields, may go on after it.
    """

    worth: str
    free: tuple[tuple[str, ...], ...] = ()
    goes_on: Callable[[Mapping[str, Any]], bool] = lambda _figures: False


def no_device(_inputs: Mapping[str, Any]) -> str | None:
    """Return the device that a stage needs for itself: none."""
    return None


def no_environment(_inputs: Mapping[str, Any]) -> dict[str, str]:
    """Return what else than inputs, config and code changes a result: nothing."""
    return {}


@dataclass(frozen=True)
class StageTask(Generic[P]):
    """A stage that is not yet bound to a store.

    Args:
        stage: Name in keys, receipts and folders.
        label: Name that a person reads, as "1 table".
        build: Writes the outputs and returns the figures for the receipt.
        modules: Modules whose import closure is the stage's code; that of `build` counts anyway.
        environment: Task inputs -> device, torch version... where they change the result.
        device: Task inputs -> name of the device that no other job may use meanwhile, or None.
        undrawn: Arguments, given by name, whose receipts give no edges in the run's graph.
        resuming: How it resumes; None: an attempt begins again.
    """

    stage: str
    label: str
    build: Callable[Concatenate[Work, P], Mapping[str, Any]]
    modules: tuple[str, ...]
    environment: Callable[[Mapping[str, Any]], dict[str, str]] = no_environment
    device: Callable[[Mapping[str, Any]], str | None] = no_device
    undrawn: frozenset[str] = frozenset()
    resuming: Resuming | None = None

    def relabelled(self, label: str) -> "StageTask[P]":
        """Return the same stage under another label; its key stays."""
        return replace(self, label=label)

    def inputs(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return arguments of the task by their names."""
        return self._signature().bind(*args, **kwargs).arguments

    def identity(self, inputs: Mapping[str, Any]) -> Identity:
        """Return the identity that the task has with these arguments: its cache key, and more."""
        receipts = receipts_among(inputs)
        config = {k: v for k, v in inputs.items() if v is not None and not list(_receipts(v))}
        own = self.build.__module__
        modules = [*self.modules, *([own] if own.partition(".")[0] == _PACKAGE else [])]
        return Identity.of(self.stage, receipts, config, modules, self.environment(inputs))

    def unfinished(self, store: Store, identity: Identity) -> Unfinished | None:
        """Return the unfinished work of a stage that resumes."""
        if self.resuming is None:
            return None
        return Unfinished(store, identity, self.resuming.free, self.resuming.worth)

    def forget_work(self, store: Store, identity: Identity) -> None:
        """Remove the unfinished work of a stage, unless a run is at it."""
        locks = FlockLockManager(store.root / LOCKS)
        work = self.unfinished(store, identity)
        if work and not locks.is_locked(work.name):
            work.forget()

    def bind(
        self, store: Store, refresh: bool = False, hub: HubConfig | None = None
    ) -> Task[P, Receipt]:
        """Return the Prefect task that looks in `store` and builds there.

        Args:
            refresh: Build again though the outputs are there.
            hub: Where work under way may be pushed to.
        """

        return Task(
            self._function(store, hub),
            name=self.stage,
            description=inspect.getdoc(self.build),
            task_run_name=self.label,
            retries=len(RETRY_DELAYS_S),
            retry_delay_seconds=list(RETRY_DELAYS_S),
            retry_condition_fn=may_pass_when_retried,
            refresh_cache=refresh,
            **cache_options(store, self.identity),
        )

    def _function(self, store: Store, hub: HubConfig | None) -> Callable[P, Receipt]:
        def run(*args: P.args, **kwargs: P.kwargs) -> Receipt:
            return self._run(store, self.inputs(*args, **kwargs), hub)

        run.__signature__ = self._signature()  # type: ignore[attr-defined]
        run.__name__ = run.__qualname__ = self.build.__name__
        return run

    def _signature(self) -> inspect.Signature:
        signature = inspect.signature(self.build)
        _work, *parameters = signature.parameters.values()
        return signature.replace(parameters=parameters, return_annotation=Receipt)

    def _run(self, store: Store, inputs: Mapping[str, Any], hub: HubConfig | None) -> Receipt:
        identity = self.identity(inputs)
        if damage := store.damage(identity):
            get_run_logger().warning("%s is built again: %s", self.label, damage)
        self._tell_attempt()
        unfinished = self.unfinished(store, identity)
        with (
            alone_on(self.device(inputs)),
            _held(unfinished) as resumable,
            store.build(identity, runtime.flow_run.id, runtime.task_run.id) as build,
        ):
            work = Work(store, identity, build.folder, RunProgress(self.label), resumable, hub)
            build.counts.update(self.build(work, **inputs))  # type: ignore[call-arg]
            if unfinished and (record := unfinished.record()):
                build.continued = record.continued
        assert build.receipt is not None
        if self.resuming and not self.resuming.goes_on(build.counts):
            self.forget_work(store, identity)
        publish_receipt(self.label, build.receipt, store.folder(identity))
        return build.receipt

    def _tell_attempt(self) -> None:
        attempt, most = runtime.task_run.run_count or 1, len(RETRY_DELAYS_S) + 1
        if attempt > 1:
            get_run_logger().warning("%s: attempt %d of %d", self.label, attempt, most)


def stage_task(
    stage: str,
    label: str,
    modules: Sequence[str],
    environment: Callable[[Mapping[str, Any]], dict[str, str]] = no_environment,
    device: Callable[[Mapping[str, Any]], str | None] = no_device,
    undrawn: Sequence[str] = (),
    resuming: Resuming | None = None,
) -> Callable[[Callable[Concatenate[Work, P], Mapping[str, Any]]], StageTask[P]]:
    """Return a decorator that makes a function the task of a stage; see `StageTask`."""

    def decorate(build: Callable[Concatenate[Work, P], Mapping[str, Any]]) -> StageTask[P]:
        return StageTask(
            stage, label, build, tuple(modules), environment, device, frozenset(undrawn), resuming
        )

    return decorate


def may_pass_when_retried(_task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Tell whether a failed attempt may pass when tried again: I/O and killed children may."""
    error = state.data
    if isinstance(error, ShadowError):
        return False
    if isinstance(error, DeviceMemoryError):
        return run.run_count <= 1
    if isinstance(error, InterruptedWorkError | ConnectionError | TimeoutError):
        return True
    return isinstance(error, BaseException) and is_transient(error)


def receipts_among(inputs: Mapping[str, Any]) -> list[Receipt]:
    """Return the receipts among a task's inputs, also those in lists."""
    return [receipt for value in inputs.values() for receipt in _receipts(value)]


@contextmanager
def _held(unfinished: Unfinished | None) -> Iterator[Path | None]:
    """Open unfinished work, if any, for this run alone: runs of other code have the same folder."""
    if unfinished is None:
        yield None
        return
    locks, holder = FlockLockManager(unfinished.store.root / LOCKS), str(uuid4())
    locks.acquire_lock(unfinished.name, holder)
    try:
        yield unfinished.open()
    finally:
        locks.release_lock(unfinished.name, holder)


def _receipts(value: Any) -> Iterator[Receipt]:
    if isinstance(value, Receipt):
        yield value
    elif isinstance(value, list | tuple):
        yield from (item for item in value if isinstance(item, Receipt))
