"""The stages of one flow run: bound to its store, tied together by receipts, counted.

Arguments are wrapped so that Prefect looks for edges in receipts only, and only at the receipts
themselves: inside them, equal strings of different runs would give edges that are not there.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec

from prefect import Task, get_run_logger
from prefect.utilities.annotations import opaque, quote

from shadow_model.receipt import Receipt
from shadow_model.store import Store
from tasks.artifacts import publish_receipt
from tasks.stage import StageTask

P = ParamSpec("P")
CACHED = "Cached"


@dataclass(frozen=True)
class Chain:
    """Runs stages in a store and remembers their receipts.

    Args:
        refresh: Build every stage again though its outputs are there.
        receipts: Of all stages so far.
        cached: Labels of those that were not run.
        awaited: Receipts that the next stage waits for though it does not read them.
    """

    store: Store
    refresh: bool = False
    receipts: list[Receipt] = field(default_factory=list)
    cached: list[str] = field(default_factory=list)
    awaited: tuple[Receipt, ...] = ()

    def after(self, *receipts: Receipt) -> "Chain":
        """Return this chain with the next stage waiting for `receipts`, as the graph shows."""
        return replace(self, awaited=receipts)

    def start(self, task: Task[P, Receipt], *args: P.args, **kwargs: P.kwargs) -> Receipt:
        """Run a task that is never cached, such as the look at the raw files."""
        args, kwargs = _wrap(args, kwargs)
        receipt = task(*args, **kwargs)
        self.receipts.append(receipt)
        return receipt

    def run(self, stage: StageTask[P], *args: P.args, **kwargs: P.kwargs) -> Receipt:
        """Run a stage in this thread (training must be in the main one) and return its receipt."""
        args, kwargs = _wrap(args, kwargs, stage.undrawn)
        task: Task[..., Receipt] = stage.bind(self.store, self.refresh)
        awaited = [opaque(receipt) for receipt in self.awaited]
        state = task(*args, return_state=True, wait_for=awaited, **kwargs)
        return self._take(stage.label, state)

    def map(
        self, stage: StageTask[...], batches: Mapping[str, Any], name: str, **common: Any
    ) -> list[Receipt]:
        """Run a stage for several batches at once.

        Args:
            batches: Label -> the batch, given as argument `name`.
            common: Arguments that all batches share.
        """
        futures = []
        for label, batch in batches.items():
            _, inputs = _wrap((), {**common, name: batch})
            task = stage.relabelled(label).bind(self.store, self.refresh)
            futures.append(task.submit(**inputs))
        for future in futures:
            future.wait()
        return [
            self._take(label, future.state) for label, future in zip(batches, futures, strict=True)
        ]

    def _take(self, label: str, state: Any) -> Receipt:
        receipt = state.result()
        assert isinstance(receipt, Receipt)
        self.receipts.append(receipt)
        if state.name == CACHED:
            folder = self.store.folder(receipt)
            self.cached.append(label)
            get_run_logger().info("%s: cached, %s", label, folder)
            publish_receipt(label, receipt, folder, cached=True)
        return receipt

    def tell_summary(self) -> None:
        """Log what was run."""
        get_run_logger().info("%s", self.summary())

    def summary(self) -> str:
        """Return what was run, in one line."""
        num_stages = sum(receipt.stage != "raw" for receipt in self.receipts)
        num_run = num_stages - len(self.cached)
        if num_run == 0:
            return f"nothing ran: all {num_stages} stages cached"
        return f"{num_run} of {num_stages} stages ran, {len(self.cached)} cached"


def _wrap(
    args: Sequence[Any], kwargs: Mapping[str, Any], undrawn: Collection[str] = ()
) -> tuple[Any, Any]:
    named = {n: quote(v) if n in undrawn else _wrapped(v) for n, v in kwargs.items()}
    return tuple(map(_wrapped, args)), named


def _wrapped(value: Any) -> Any:
    if isinstance(value, Receipt):
        return opaque(value)
    if isinstance(value, list | tuple) and any(isinstance(item, Receipt) for item in value):
        return [opaque(item) for item in value]
    return quote(value)
