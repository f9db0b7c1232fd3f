"""What a command tells at its end: an error that a user can act on, or tables."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from shadow_model.errors import ShadowError
from shadow_model.report import words

BAD_INPUT = 2
Command = Callable[..., None]


def tell_error(error: ShadowError) -> None:
    """Write an error's four parts."""
    lines = [
        f"{type(error).__name__}: {error.where}",
        f"  must {error.must}",
        f"  found {error.found}",
        f"  {error.fix}",
    ]
    sys.stderr.write("\n".join(lines) + "\n")


def tell_table(header: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print a table, as wide as the terminal."""
    table = Table(*header, title=title or None, title_justify="left")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def tell_report(content: Mapping[str, Any]) -> None:
    """Print what a report's JSON twin says: the verdict, held-out losses, and costs."""
    arms = list(content["costs"])
    header = ["held out, nats a token", "unigrams", *(words.ARM_NAMES[arm] for arm in arms)]
    rows = [
        [row["kind"], words.loss(row["unigram_entropy_nats"]), *(_ends(row[arm]) for arm in arms)]
        for row in content["held_out"]
    ]
    told: Sequence[tuple[str, str, Callable[[Any], str]]] = (
        ("tokens", "tokens", words.quantity),
        ("tokens a second", "tokens_per_s", words.quantity),
        ("FLOPs", "flops", words.quantity),
        ("time, evaluation included", "elapsed_s", words.duration),
        ("money", "money", lambda money: money or words.NONE),
    )
    for name, field, spoken in told:
        values = [content["costs"][arm].get(field) for arm in arms]
        if any(value is not None for value in values):
            rows.append([name, "", *map(spoken, values)])
    tell_table(header, rows)
    console().print(content["verdict"]["headline"])


def _ends(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return words.NONE
    start, end = row["start"]["loss"], row["end"]
    return f"{words.loss(start)} -> {words.loss(end['loss'], end['standard_error'])}"


def console() -> Console:
    """Return the console of a command's answer: long words and brackets stay as they are."""
    return Console(markup=False, highlight=False, soft_wrap=False)


def run_command(commands: Mapping[str, Command], arguments: Sequence[str]) -> int:
    """Run the command of one JSON object with `flow` and `parameters`; returns the exit code."""
    job: dict[str, Any] = json.loads(arguments[0])
    try:
        commands[job["flow"]](**job["parameters"])
    except ShadowError as error:
        tell_error(error)
        return BAD_INPUT
    return 0


def size(num_bytes: int) -> str:
    """Return bytes as a person reads them."""
    value, units = float(num_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:,.1f} {units[0]}"
