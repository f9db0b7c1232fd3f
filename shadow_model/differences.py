"""Why a stage is no hit: what differs from the nearest of its receipts, named for a person.

The nearest receipt is the one with the fewest differences, the newest of several.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shadow_model.fingerprint import module_parts
from shadow_model.receipt import Identity, InputRecord, Receipt
from shadow_model.store import Store

_SHOWN = 3
_NOTHING = "nothing"


@dataclass(frozen=True)
class Difference:
    """What sets a stage apart from a receipt of it; empty parts are equal."""

    receipt: Receipt
    inputs: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """All of it, one line a change."""
        return (*self.inputs, *self.config, *self.environment, *self.code)

    @property
    def code_only(self) -> bool:
        """Whether the receipt is of the same inputs and config, and of other code."""
        return bool(self.code) and not (self.inputs or self.config or self.environment)


def nearest(store: Store, identity: Identity, inputs: Sequence[Receipt]) -> Difference | None:
    """Compare a stage with the receipt of it that is most like it; None where there is none.

    Args:
        inputs: The receipts that it reads.
    """
    found = [compare(store, identity, inputs, r) for r in store.stage_receipts(identity.stage)]
    return min(found, key=lambda difference: len(difference.lines), default=None)


def compare(
    store: Store, identity: Identity, inputs: Sequence[Receipt], receipt: Receipt
) -> Difference:
    """Name what differs between a stage and a receipt of it."""
    return Difference(
        receipt,
        inputs=tuple(_inputs(store, inputs, receipt.inputs)),
        config=tuple(value_changes("config", receipt.config, identity.config)),
        code=tuple(code_changes(store, receipt.code, identity)),
        environment=tuple(value_changes("", receipt.environment, identity.environment)),
    )


def raw_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Name the raw files that differ between the configs of two receipts of raw inputs."""
    before, after = _raw_files(old), _raw_files(new)
    return [_changed_files("raw", before, after)] if before != after else []


def code_changes(store: Store, old: Mapping[str, str], identity: Identity) -> Iterator[str]:
    """Name what of a stage's code differs from `old`: module -> digest."""
    for module in dict.fromkeys([*old, *identity.code]):
        before, after = old.get(module), identity.code.get(module)
        if before == after:
            continue
        if before is None or after is None:
            yield f"code {module} is {'new' if before is None else 'no longer used'}"
        else:
            yield f"code {_changed_parts(store, module, before, after)}"


def _inputs(store: Store, new: Sequence[Receipt], old: Sequence[InputRecord]) -> Iterator[str]:
    if [r.stage for r in new] != [r.stage for r in old]:
        names = [_listed([r.stage for r in records]) or _NOTHING for records in (new, old)]
        yield f"reads {names[0]}, read {names[1]}"
        return
    for now, was in zip(new, old, strict=True):
        if now.as_input().sha256 != was.sha256:
            yield _changed_input(now, store.receipt(was.stage, was.key), was)


def _changed_input(now: Receipt, before: Receipt | None, was: InputRecord) -> str:
    if before is None or before.as_input().sha256 != was.sha256:  # collected, or built again
        return f"input {now.stage} changed"
    if "files" in now.config and "files" in before.config:
        return _changed_files(
            f"input {now.stage}", _raw_files(before.config), _raw_files(now.config)
        )
    outputs = [{f.name: f.sha256 for f in receipt.outputs} for receipt in (before, now)]
    return _changed_files(f"input {now.stage}", *outputs)


def _raw_files(config: Mapping[str, Any]) -> dict[str, str]:
    return {str(file["name"]): str(file["sha256"]) for file in config.get("files", [])}


def _changed_files(what: str, old: Mapping[str, str], new: Mapping[str, str]) -> str:
    named = [
        *(f"{n} changed" for n in sorted(old.keys() & new.keys()) if old[n] != new[n]),
        *(f"{n} is new" for n in sorted(new.keys() - old.keys())),
        *(f"{n} is gone" for n in sorted(old.keys() - new.keys())),
    ]
    return f"{what}: {_listed(named)}"


def value_changes(where: str, old: Any, new: Any) -> Iterator[str]:
    """Yield 'field: old -> new' of every value that differs, nested ones by their path."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            path = f"{where}.{name}" if where else str(name)
            yield from value_changes(path, old.get(name), new.get(name))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from value_changes(f"{where}[{number}]", *pair)
    elif old != new:
        yield f"{where}: {_short(old)} -> {_short(new)}"


def _changed_parts(store: Store, module: str, before: str, after: str) -> str:
    old, new = store.code.read(before), module_parts(module, after)
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    return f"{module}: {_listed(names)}" if old and new and names else f"{module} changed"


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
