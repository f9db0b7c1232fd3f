"""Metrics of a run: JSON lines on disk, and the console lines drawn from them.

One record a line, told apart by `event`:
    start      what is trained: parameters, steps, device
    phase      context length, loops or sparsity change from this step on
    growth     the loops grow
    log        means over the interval since the last such record
    evaluate   held-out losses
    final      the end: cost, and whether the learning rate was annealed
`step` is the number of updates done, `elapsed_s` the wall-clock time over all resumes. Losses are
nats a token. Reports read these records, never logs.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shadow_model.errors import DataError
from shadow_model.reading import parse_json, reading
from shadow_model.store import write_whole
from shadow_model.table.layout import KINDS

Record = dict[str, Any]
HELD_OUT = "HELD-OUT"
"""Begins the line of a held-out evaluation."""


class Metrics:
    """The metrics file of one run, open for appending.

    Args:
        path: metrics.jsonl; made if absent.
        keep: Records kept of those that are there, as many as the restored checkpoint had seen:
            the run writes the later ones anew. A last line cut off by a kill is dropped too.
    """

    def __init__(self, path: Path, keep: int) -> None:
        kept = read_metrics(path)[:keep] if path.exists() else []
        write_whole(path, "".join(map(_line, kept)).encode())
        self.num_records = len(kept)
        self._file = path.open("a", encoding="utf-8")

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a record; it is with the operating system when this returns."""
        self._file.write(_line(record))
        self._file.flush()
        self.num_records += 1

    def sync(self) -> None:
        """Return when all records are on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> list[Record]:
    """Read the records of a metrics file; a cut-off last line is left out.

    Raises:
        DataError: The file is absent, or another line is not a record.
    """
    return list(_records(path))


def _records(path: Path) -> Iterator[Record]:
    fix = "Restore the file, or delete the run's work folder and train again."
    with reading(DataError, path, "be a readable metrics file", fix):
        lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines[:-1], 1):  # whole lines end with a line feed
        with reading(DataError, f"{path}:{number}", "be JSON of finite numbers", fix):
            record = parse_json(line)
        if not isinstance(record, dict) or not {"event", "step"} <= record.keys():
            raise DataError(f"{path}:{number}", "be a record with event and step", line[:80], fix)
        yield record


def console_line(record: Mapping[str, Any]) -> str | None:
    """Return the line that tells a record on the console, or None where none is shown."""
    if record["event"] == "log":
        return (
            f"step {record['step']}  ctx {record['ctx_tokens']}  K {record['loops']}  "
            f"loss {record['loss']:.4f}  index-KL {record['index_kl']:.4f}  {_kinds(record)}  "
            f"{record['tokens_per_s']:.0f} tok/s  {record['elapsed_s'] / 3600:.2f} h"
        )
    if record["event"] == "evaluate":
        return (
            f"{HELD_OUT} step {record['step']}  ctx {record['ctx_tokens']}  "
            f"loss {record['loss']:.4f}  ±{record['standard_error']:.4f}  {_kinds(record)}  "
            f"K {record['loops']}"
        )
    if record["event"] == "growth":
        return f"GROWTH step {record['step']}  K {record['from_loops']} -> {record['loops']}"
    return None


def _kinds(record: Mapping[str, Any]) -> str:
    losses = {kind: record["kinds"][kind]["loss"] for kind in KINDS}
    return "  ".join(f"{k} {'-' if v is None else format(v, '.3f')}" for k, v in losses.items())


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, allow_nan=False) + "\n"
