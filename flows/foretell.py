"""`shadow plan` and `shadow accept`: what a flow would run, told before anything runs.

`python -m flows.foretell '{"flow": "plan", "parameters": {...}}'`, as `flows.launch` starts it.
"""

import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from flows.control import train_control
from flows.parameters import Order, check_stage, open_run
from flows.prepare import prepare_data
from flows.proof import prove
from flows.telling import console, run_command, tell_table
from shadow_model.errors import ConfigError
from tasks.foresight import Acceptance, Foresight, Outlook

_MAX_REASONS = 6
ORDERS: Mapping[str, Order] = {
    "proof": prove,
    "control": train_control,
    "prepare": prepare_data,
}


def plan(flow: str, recipe: str, store: str, force: str | None = None, **overrides: Any) -> None:
    """Tell what a flow would run, what is cached, and why."""
    config, chain = open_run(recipe, store, **overrides)
    if force is not None:
        check_stage(ORDERS[flow], config, chain.store, force)
    foresight = Foresight(chain.store, force=force)
    ORDERS[flow](foresight, config)
    _tell(foresight.outlooks, f"{flow} {recipe}")


def accept(flow: str, stage: str, reason: str, recipe: str, store: str, **overrides: Any) -> None:
    """Keep the outputs of a stage though its code changed."""
    config, chain = open_run(recipe, store, **overrides)
    check_stage(ORDERS[flow], config, chain.store, stage)
    if not reason.strip():
        raise ConfigError("accept --reason", "say why", repr(reason), "Name what makes it safe.")
    foresight = Foresight(chain.store, accept=Acceptance(stage, reason.strip()))
    ORDERS[flow](foresight, config)
    if not foresight.accepted:
        raise _nothing_accepted(foresight.outlooks, stage)
    _tell(foresight.outlooks, f"{flow} {recipe}, {len(foresight.accepted)} accepted")


def _nothing_accepted(outlooks: Sequence[Outlook], stage: str) -> ConfigError:
    of_stage = [outlook for outlook in outlooks if outlook.stage == stage]
    found = "; ".join(dict.fromkeys(f"{o.state}: {', '.join(o.why)}" for o in of_stage))
    must = "differ from its last run in its code, and in nothing else"
    return ConfigError(
        f"accept {stage}", must, found, "Run it: `shadow run` builds what is missed."
    )


def _tell(outlooks: Sequence[Outlook], title: str) -> None:
    rows = [_row(list(group)) for _, group in groupby(outlooks, key=_alike)]
    tell_table(("stage", "", "why", "last took"), rows, title)
    console().print(_summary(outlooks))


def _alike(outlook: Outlook) -> tuple[Any, ...]:
    """Batches of a stage of one outlook are one row; when each was built tells nothing more."""
    accepted = outlook.receipt.accepted if outlook.receipt else None
    return outlook.stage, outlook.state, outlook.state == "cached" or outlook.why, accepted


def _row(group: list[Outlook]) -> tuple[str, ...]:
    first, times = group[0], f" and {len(group) - 1} more" if len(group) > 1 else ""
    state = {"cached": "cached", "runs": "would run", "looked at": "looked at"}[first.state]
    seconds = sum(o.receipt.seconds for o in group if o.receipt)
    known = any(o.receipt for o in group)
    return (
        f"{first.label}{times}",
        state,
        "\n".join(_first(first.why)),
        f"{seconds:,.1f} s" if known else "",
    )


def _first(why: Sequence[str]) -> list[str]:
    rest = len(why) - _MAX_REASONS
    return [*why[:_MAX_REASONS], *([f"and {rest} more"] if rest > 0 else [])]


def _summary(outlooks: Sequence[Outlook]) -> str:
    runs = [o for o in outlooks if o.state == "runs"]
    cached = sum(o.state == "cached" for o in outlooks)
    if not runs:
        return f"nothing would run: all {cached} stages cached"
    known = [o.receipt.seconds for o in runs if o.receipt]
    unknown = (
        f", {len(runs) - len(known)} of them for the first time" if len(known) < len(runs) else ""
    )
    last = f"; last time these took {sum(known):,.0f} s" if known else ""
    return f"{len(runs)} would run{unknown}, {cached} cached{last}"


def main(arguments: Sequence[str]) -> int:
    """Run a command; returns its exit code."""
    return run_command({"plan": plan, "accept": accept}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
