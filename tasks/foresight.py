"""What a flow would run, found by walking through its very order without running anything.

`Foresight` stands in for the chain: a stage whose outputs stand in the store gives its receipt, any
other an `Unbuilt` one, and what reads an unbuilt stage would run, too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, ParamSpec

from shadow_model.differences import Difference, nearest, raw_changes
from shadow_model.errors import ConfigError
from shadow_model.receipt import Acceptance as Accepted
from shadow_model.receipt import Identity, Receipt
from shadow_model.store import Store
from shadow_model.unfinished import Unfinished
from tasks.chain import Chain
from tasks.raw import STAGE as RAW
from tasks.raw import Look
from tasks.stage import StageTask, receipts_among

P = ParamSpec("P")


class Unbuilt(Receipt):
    """Stands for what a stage would leave: nothing is known of it but its name."""

    key: str = ""


@dataclass(frozen=True)
class Outlook:
    """What would become of one stage.

    Attributes:
        why: Reasons, one a line.
        receipt: The receipt that is used, or else the one that the reasons compare with.
        difference: From that receipt, where the stage is a miss that can be compared.
    """

    label: str
    stage: str
    state: Literal["cached", "runs", "looked at"]
    why: tuple[str, ...] = ()
    receipt: Receipt | None = None
    difference: Difference | None = None


@dataclass(frozen=True)
class Acceptance:
    """A wish to keep the outputs of a stage though its code changed."""

    stage: str
    reason: str


@dataclass(frozen=True)
class Foresight(Chain):
    """A chain that runs nothing.

    Args:
        accept: Stages of this name that differ by code only are accepted on the way.
        outlooks: One a stage, in order.
        accepted: What was written for `accept`, of finished and of unfinished stages.
    """

    accept: Acceptance | None = None
    outlooks: list[Outlook] = field(default_factory=list)
    accepted: list[Accepted] = field(default_factory=list)

    def start(self, look: Look[P], *args: P.args, **kwargs: P.kwargs) -> Receipt:
        """Look at the raw files, as a run would."""
        receipt = look.foresee(self.store, *args, **kwargs)
        why = () if receipt.ended else self._raw_changes(receipt)
        self.outlooks.append(Outlook(look.label, RAW, "looked at", why))
        self.receipts.append(receipt)
        return receipt

    def run(self, stage: StageTask[P], *args: P.args, **kwargs: P.kwargs) -> Receipt:
        """Foresee a stage."""
        return self._foresee(stage, stage.inputs(*args, **kwargs))

    def map(
        self, stage: StageTask[...], batches: Mapping[str, Any], name: str, **common: Any
    ) -> list[Receipt]:
        """Foresee a stage for several batches, or once where they are not known yet."""
        if not batches:
            return [self._foresee(stage, common)]
        given = {label: {**common, name: batch} for label, batch in batches.items()}
        return [self._foresee(stage.relabelled(label), one) for label, one in given.items()]

    def _foresee(self, stage: StageTask[...], inputs: Mapping[str, Any]) -> Receipt:
        outlook = self._outlook(stage, inputs, receipts_among(inputs))
        self.outlooks.append(outlook)
        cached = outlook.state == "cached" and outlook.receipt
        receipt = cached or Unbuilt(stage=stage.stage)
        self.receipts.append(receipt)
        return receipt

    def _outlook(
        self, stage: StageTask[...], inputs: Mapping[str, Any], read: Sequence[Receipt]
    ) -> Outlook:
        if self.builds_again(stage.stage, ()):
            last = next(iter(self.store.stage_receipts(stage.stage)), None)
            return Outlook(stage.label, stage.stage, "runs", ("forced",), last)
        if unbuilt := [r.stage for r in read if isinstance(r, Unbuilt)]:
            why = f"because {_listed(unbuilt)} {'runs' if len(set(unbuilt)) == 1 else 'run'}"
            last = next(iter(self.store.stage_receipts(stage.stage)), None)
            return Outlook(stage.label, stage.stage, "runs", (why,), last)
        identity = stage.identity(inputs)
        if receipt := self.store.find(identity.stage, identity.key):
            return Outlook(stage.label, stage.stage, "cached", _why_cached(receipt), receipt)
        return self._miss(stage, identity, read)

    def _miss(self, stage: StageTask[...], identity: Identity, read: Sequence[Receipt]) -> Outlook:
        label = stage.label
        if damage := self.store.damage(identity):
            last = self.store.receipt(identity.stage, identity.key)
            return Outlook(label, identity.stage, "runs", (damage,), last)
        difference = nearest(self.store, identity, read)
        asked = self.accept is not None and self.accept.stage == identity.stage
        if asked and difference and difference.code_only:
            receipt = self._accept(identity, difference)
            return Outlook(label, identity.stage, "cached", _why_cached(receipt), receipt)
        left = self._why_left(stage.unfinished(self.store, identity), asked)
        if difference is None:
            return Outlook(label, identity.stage, "runs", (*left, "has not run here yet"))
        why, receipt = (*left, *difference.lines), difference.receipt
        return Outlook(label, identity.stage, "runs", why, receipt, difference)

    def _why_left(self, work: Unfinished | None, asked: bool) -> tuple[str, ...]:
        """Tell of unfinished work; accept that it is of other code, where that is asked."""
        if work is None or not work.is_begun():
            return ()
        if asked and self.accept and (accepted := work.accept(self.accept.reason)):
            self.accepted.append(accepted)
        if changes := work.changes():
            must = "`accept` or `--force` it first: its unfinished work is of other code"
            return (f"{must}: {', '.join(changes)}",)
        return ("goes on with unfinished work",)

    def _accept(self, identity: Identity, difference: Difference) -> Receipt:
        assert self.accept is not None
        old = difference.receipt
        if damage := self.store.verify(old, deep=True):
            fix = f"Run it again: `shadow run --force {identity.stage}`."
            raise ConfigError(f"accept {identity.stage}", "find whole outputs", damage, fix)
        receipt = self.store.accept(old, identity, self.accept.reason, difference.code)
        assert receipt.accepted is not None
        self.accepted.append(receipt.accepted)
        return receipt

    def _raw_changes(self, receipt: Receipt) -> tuple[str, ...]:
        """Compare with the last look that saw most of the same files."""
        names = {file["name"] for file in receipt.config["files"]}
        before = [
            old
            for old in self.store.stage_receipts(RAW)
            if names & {file["name"] for file in old.config["files"]}
        ]
        if not before:
            return ("not looked at before",)
        return tuple(raw_changes(before[0].config, receipt.config))


def foresee_names(store: Store, order: Callable[[Chain, Any], Any], config: Any) -> list[str]:
    """Return the names of an order's stages that can be forced or accepted; looks at nothing."""
    names = _Names(store)
    order(names, config)
    return list(dict.fromkeys(outlook.stage for outlook in names.outlooks))


class _Names(Foresight):
    def start(self, look: Look[P], *args: P.args, **kwargs: P.kwargs) -> Receipt:  # noqa: ARG002
        return Unbuilt(stage=RAW)

    def _foresee(self, stage: StageTask[...], inputs: Mapping[str, Any]) -> Receipt:  # noqa: ARG002
        self.outlooks.append(Outlook(stage.label, stage.stage, "runs"))
        receipt = Unbuilt(stage=stage.stage)
        self.receipts.append(receipt)
        return receipt


def _why_cached(receipt: Receipt) -> tuple[str, ...]:
    when = f"built {receipt.ended[:19].replace('T', ' ')} UTC"
    reasons = [f"accepted: {a.reason}" for a in receipt.acceptances]
    changes = [f"though changed: {a.what}" for a in receipt.acceptances]
    return (", ".join([when, *reasons]), *changes)


def _listed(names: Sequence[str]) -> str:
    *most, last = dict.fromkeys(names)
    return f"{', '.join(most)} and {last}" if most else last
