"""Event files for TensorBoard, beside the metrics that they repeat.

Written where the extra `tensorboard` is installed. A resumed run hides what an earlier attempt had
written past its checkpoint, as TensorBoard's own restart rule has it.
"""

import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shadow_model.train.telemetry import Record

_PLAIN = ("loss", "index_kl", "gradient_norm", "lr", "tokens_per_s", "loops", "ctx_tokens")
_HELD_OUT = ("loss", "text_bits_per_byte")


class EventFiles:
    """The event files of one run.

    Args:
        folder: Where they lie, one folder a run; None, or without the extra: nothing is written.
        step: Updates done; what stands there of later ones is hidden.
    """

    def __init__(self, folder: Path | None, step: int) -> None:
        wanted = folder is not None and importlib.util.find_spec("tensorboard") is not None
        self._writer = _open(folder, step) if wanted and folder else None

    def write(self, record: Record) -> None:
        """Write the figures of a record of the metrics."""
        if self._writer is None:
            return
        for name, value in scalars(record):
            self._writer.add_scalar(name, value, record["step"])
        if record["event"] != "log":
            self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()


def scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield name and value of what is drawn of a record."""
    if record["event"] == "log":
        yield from _named("training", record, _PLAIN)
    elif record["event"] == "evaluate" and record["why"] != "before growth":
        yield from _named(f"held out, {record['loops']} loops", record, _HELD_OUT)


def _named(
    group: str, record: Mapping[str, Any], names: tuple[str, ...]
) -> Iterator[tuple[str, float]]:
    for name in names:
        if record.get(name) is not None:
            yield f"{group}/{name}", float(record[name])
    for kind, figures in record["kinds"].items():
        if figures["loss"] is not None:
            yield f"{group}/loss {kind}", float(figures["loss"])


def _open(folder: Path, step: int) -> Any:
    tensorboard = importlib.import_module("torch.utils.tensorboard")
    return tensorboard.SummaryWriter(str(folder), purge_step=step + 1 if step else None)
