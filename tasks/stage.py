"""What the tasks of all stages have in common: identity, cache, receipt, artifact, retries.

`@stage_task` turns a function that builds one stage's outputs,

    def build(work: Work, *earlier receipts and configs) -> figures

into a Prefect task that takes the same arguments without `work` and returns the stage's receipt.
The identity is computed from the arguments in one place, for the cache key and for the build.
"""

import errno
import inspect
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec

from prefect import Task, get_run_logger, runtime
from prefect.client.schemas.objects import State, TaskRun

from shadow_model.errors import ShadowError
from shadow_model.progress import Progress
from shadow_model.receipt import Identity, Receipt
from shadow_model.store import Store
from tasks.artifacts import publish_receipt
from tasks.caching import cache_options
from tasks.progress import RunProgress

P = ParamSpec("P")
_PACKAGE = __name__.partition(".")[0]

RETRY_DELAYS_S = (2.0, 10.0, 60.0)
_TRANSIENT_ERRNO = frozenset(
    {errno.EIO, errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT}
)


class InterruptedWorkError(RuntimeError):
    """Work that ended for a reason outside of it, and may pass when tried again."""


@dataclass(frozen=True)
class Work:
    """What a stage's function gets: where to write, how to tell its progress, earlier outputs."""

    store: Store
    identity: Identity
    folder: Path
    progress: Progress

    def of(self, receipt: Receipt) -> Path:
        """Return the folder of an earlier stage's outputs."""
        return self.store.folder(receipt)

    def resumable(self) -> Path:
        """Return a folder that outlives a failed attempt; it goes when the stage is published."""
        return self.store.work(_work_name(self.identity))


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
        undrawn: Arguments, given by name, whose receipts give no edges in the run's graph.
    """

    stage: str
    label: str
    build: Callable[Concatenate[Work, P], Mapping[str, Any]]
    modules: tuple[str, ...]
    environment: Callable[[Mapping[str, Any]], dict[str, str]] = no_environment
    undrawn: frozenset[str] = frozenset()

    def relabelled(self, label: str) -> "StageTask[P]":
        """Return the same stage under another label; its key stays."""
        return replace(self, label=label)

    def identity(self, inputs: Mapping[str, Any]) -> Identity:
        """Return the identity that the task has with these arguments: its cache key, and more."""
        receipts = [r for value in inputs.values() for r in _receipts(value)]
        config = {k: v for k, v in inputs.items() if v is not None and not list(_receipts(v))}
        own = self.build.__module__
        modules = [*self.modules, *([own] if own.partition(".")[0] == _PACKAGE else [])]
        return Identity.of(self.stage, receipts, config, modules, self.environment(inputs))

    def bind(self, store: Store, refresh: bool = False) -> Task[P, Receipt]:
        """Return the Prefect task that looks in `store` and builds there.

        Args:
            refresh: Build again though the outputs are there.
        """

        return Task(
            self._function(store),
            name=self.stage,
            description=inspect.getdoc(self.build),
            task_run_name=self.label,
            retries=len(RETRY_DELAYS_S),
            retry_delay_seconds=list(RETRY_DELAYS_S),
            retry_condition_fn=may_pass_when_retried,
            refresh_cache=refresh,
            **cache_options(store, self.identity),
        )

    def _function(self, store: Store) -> Callable[P, Receipt]:
        signature = inspect.signature(self.build)
        _work, *parameters = signature.parameters.values()
        signature = signature.replace(parameters=parameters, return_annotation=Receipt)

        def run(*args: P.args, **kwargs: P.kwargs) -> Receipt:
            return self._run(store, signature.bind(*args, **kwargs).arguments)

        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__name__ = run.__qualname__ = self.build.__name__
        return run

    def _run(self, store: Store, inputs: Mapping[str, Any]) -> Receipt:
        identity = self.identity(inputs)
        if damage := store.damage(identity):
            get_run_logger().warning("%s is built again: %s", self.label, damage)
        with store.build(identity, runtime.flow_run.id, runtime.task_run.id) as build:
            work = Work(store, identity, build.folder, RunProgress(self.label))
            build.counts.update(self.build(work, **inputs))  # type: ignore[call-arg]
        assert build.receipt is not None
        shutil.rmtree(store.work(_work_name(identity)))
        publish_receipt(self.label, build.receipt, store.folder(identity))
        return build.receipt


def stage_task(
    stage: str,
    label: str,
    modules: Sequence[str],
    environment: Callable[[Mapping[str, Any]], dict[str, str]] = no_environment,
    undrawn: Sequence[str] = (),
) -> Callable[[Callable[Concatenate[Work, P], Mapping[str, Any]]], StageTask[P]]:
    """Return a decorator that makes a function the task of a stage; see `StageTask`."""

    def decorate(build: Callable[Concatenate[Work, P], Mapping[str, Any]]) -> StageTask[P]:
        return StageTask(stage, label, build, tuple(modules), environment, frozenset(undrawn))

    return decorate


def may_pass_when_retried(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Tell whether a failed attempt may pass when tried again: I/O and killed children may."""
    error = state.data
    if isinstance(error, ShadowError):
        return False
    if isinstance(error, InterruptedWorkError | ConnectionError | TimeoutError):
        return True
    return isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNO


def _work_name(identity: Identity) -> str:
    return f"{identity.stage}-{identity.key}"


def _receipts(value: Any) -> Iterator[Receipt]:
    if isinstance(value, Receipt):
        yield value
    elif isinstance(value, list | tuple):
        yield from (item for item in value if isinstance(item, Receipt))
