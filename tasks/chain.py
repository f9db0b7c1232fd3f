"""The stages of one flow run: bound to its store, tied together by receipts, recorded, counted.

Arguments are wrapped so that Prefect looks for edges in receipts only, and only at the receipts
themselves: inside them, equal strings of different runs would give edges that are not there.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec

from prefect import Task, get_run_logger, runtime
from prefect.utilities.annotations import opaque, quote

from shadow_model.hub.config import HubConfig
from shadow_model.receipt import Identity, Receipt
from shadow_model.run_record import RunLog, StageUse, State
from shadow_model.store import Store
from tasks.artifacts import publish_receipt
from tasks.raw import Look
from tasks.stage import StageTask, receipts_among

P = ParamSpec("P")
CACHED = "Cached"


@dataclass(frozen=True)
class Chain:
    """Runs stages in a store and remembers their receipts.

    Args:
        refresh: Build every stage again though its outputs are there.
        force: Name of a stage to build again, with all that reads it, or nothing.
        receipts: Of all stages so far.
        cached: Labels of those that were not run.
        rebuilt: Stages and keys of those that were built again on purpose.
        logs: The record of the run under way, by its id, once there is one.
        awaited: Receipts that the next stage waits for though it does not read them.
        hub: Where trainings under way are pushed to; it changes no result.
    """

    store: Store
    refresh: bool = False
    force: str | None = None
    receipts: list[Receipt] = field(default_factory=list)
    cached: list[str] = field(default_factory=list)
    rebuilt: set[tuple[str, str]] = field(default_factory=set)
    logs: dict[str, RunLog] = field(default_factory=dict)
    awaited: tuple[Receipt, ...] = ()
    hub: HubConfig | None = None

    def after(self, *receipts: Receipt) -> "Chain":
        """Return this chain with the next stage waiting for `receipts`, as the graph shows."""
        return replace(self, awaited=receipts)

    def start(self, look: Look[P], *args: P.args, **kwargs: P.kwargs) -> Receipt:
        """Look at raw files; this is never cached."""
        args, kwargs = _wrap(args, kwargs)
        receipt = look.bind(self.store)(*args, **kwargs)
        self.receipts.append(receipt)
        self._note([_use(look.label, receipt, "built")])
        return receipt

    def run(self, stage: StageTask[P], *args: P.args, **kwargs: P.kwargs) -> Receipt:
        """Run a stage in this thread (training must be in the main one) and return its receipt."""
        identity, task = self._prepare(stage, stage.inputs(*args, **kwargs))
        self._note([_use(stage.label, identity, "started")])
        args, kwargs = _wrap(args, kwargs, stage.undrawn)
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
        given = {label: {**common, name: batch} for label, batch in batches.items()}
        bound = {lbl: self._prepare(stage.relabelled(lbl), one) for lbl, one in given.items()}
        self._note(_use(label, identity, "started") for label, (identity, _) in bound.items())
        futures = [bound[label][1].submit(**_wrap((), one)[1]) for label, one in given.items()]
        for future in futures:
            future.wait()
        return [
            self._take(label, future.state) for label, future in zip(batches, futures, strict=True)
        ]

    def builds_again(self, stage: str, receipts: Iterable[Receipt]) -> bool:
        """Tell whether a stage that reads `receipts` is to be built though its outputs stand."""
        follows = any((r.stage, r.key) in self.rebuilt for r in receipts)
        return self.refresh or stage == self.force or follows

    def _prepare(
        self, stage: StageTask[...], inputs: Mapping[str, Any]
    ) -> tuple[Identity, Task[..., Receipt]]:
        identity = stage.identity(inputs)
        again = self.builds_again(stage.stage, receipts_among(inputs))
        if again:
            self.rebuilt.add((identity.stage, identity.key))
            stage.forget_work(self.store, identity)
        return identity, stage.bind(self.store, again, self.hub)

    def _note(self, uses: Iterable[StageUse]) -> None:
        if ident := runtime.flow_run.id:
            if ident not in self.logs:
                self.logs[ident] = RunLog(self.store, ident, runtime.flow_run.name or "")
            self.logs[ident].note(uses)

    def _take(self, label: str, state: Any) -> Receipt:
        receipt = state.result()
        assert isinstance(receipt, Receipt)
        self.receipts.append(receipt)
        self._note([_use(label, receipt, "cached" if state.name == CACHED else "built")])
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


def _use(label: str, of: Identity | Receipt, state: State) -> StageUse:
    return StageUse(label=label, stage=of.stage, key=of.key, state=state)


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
