"""`shadow gc`, `shadow lineage` and `shadow compare`: commands on a store alone.

`python -m flows.upkeep '{"flow": "gc", "parameters": {...}}'`, as `flows.launch` starts it.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from flows.telling import console, run_command, size, tell_table
from shadow_model.garbage import Collection, find_garbage, remove_garbage
from shadow_model.lineage import lineage_lines, trace
from shadow_model.lineage_picture import draw_lineage
from shadow_model.report.compare import compare_runs
from shadow_model.store import Store


def collect(store: str, keep: int, apply: bool) -> None:
    """Tell what no kept run needs, and remove it where asked."""
    place = Store(store)
    collection = (remove_garbage if apply else find_garbage)(place, keep)
    rows = [(item.path.relative_to(place.root).as_posix(), item.why) for item in collection.garbage]
    if rows:
        tell_table(("removed" if apply else "would remove", "why"), rows)
    console().print(_outcome(collection, apply))


def lineage(store: str, file: str, picture: str | None = None) -> None:
    """Tell where a file came from, as a tree and as a picture where asked."""
    found = trace(Store(store), Path(file))
    console().print("\n".join(lineage_lines(found)), soft_wrap=True)
    if picture is not None:
        draw_lineage(found, Path(picture))
        console().print(picture, soft_wrap=True)


def compare(store: str, runs: list[str], out: str) -> None:
    """Write a page of several runs, and tell where it is."""
    console().print(str(compare_runs(Store(store), runs, Path(out))), soft_wrap=True)


def _outcome(collection: Collection, applied: bool) -> str:
    names = ", ".join(run.name or run.id for run in collection.kept) or "none: outputs stay"
    freed = size(collection.freed_bytes)
    done = f"freed {freed}" if applied else f"would free {freed}; add --apply to remove it"
    return f"runs kept: {names}\n{done if collection.garbage else 'nothing to remove'}"


def main(arguments: Sequence[str]) -> int:
    """Run a command; returns its exit code."""
    return run_command({"gc": collect, "lineage": lineage, "compare": compare}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
