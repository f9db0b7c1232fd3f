"""Checkpoints: folders of safetensors and JSON, written whole or not at all.

<folder>/step_00001000/model.safetensors       weights, under the names of the model
<folder>/step_00001000/optimizer.safetensors   AdamW's moments
<folder>/step_00001000/state.json              everything else; names the bytes of the other two
A checkpoint is written under a temporary name, synced and then renamed: a folder of that name is
whole. `final/` of a run holds weights with `config.json`, which is the head of state.json.
"""

import logging
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import safetensors.torch
from pydantic import Field
from safetensors import SafetensorError
from torch import Tensor

from shadow_model.digest import sha256_file
from shadow_model.disk import require_space
from shadow_model.errors import CheckpointError, ConfigError, LayoutError
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.model import Shadow
from shadow_model.reading import load_json, reading
from shadow_model.schema import Schema
from shadow_model.store import write_whole
from shadow_model.table.store import Table
from shadow_model.train.config import TrainConfig
from shadow_model.train.reference import load_reference
from shadow_model.train.tensors import check_tensors

__all__ = [
    "Checkpoint",
    "TrainingState",
    "Weights",
    "latest_checkpoint",
    "load_checkpoint",
    "load_reference",
    "read_checkpoint",
    "save_checkpoint",
    "save_weights",
]
MODEL, OPTIMIZER, STATE, CONFIG = (
    "model.safetensors",
    "optimizer.safetensors",
    "state.json",
    "config.json",
)
TABLE = "table.npz"
_TEMPORARY = ".writing."
_FIX = "Name an older checkpoint, or train again."
S = TypeVar("S", bound=Schema)
_log = logging.getLogger(__name__)


class Weights(Schema):
    """What a folder of weights says of them."""

    version: Literal[1] = Field(1, description="format version of the folder")
    tag: str = Field(description="arm of the comparison")
    model: ModelConfig
    table_sha256: str = Field(description="sha256 of the table.npz that the weights belong to")
    loops: int = Field(ge=1, description="passes over the core that the weights were trained with")
    step: int = Field(ge=0, description="updates done")
    tokens: int = Field(ge=0, description="tokens trained on")
    annealed: bool = Field(False, description="whether the learning rate ran its whole schedule")


class TrainingState(Weights):
    """What a resumed run needs besides tensors."""

    train: TrainConfig
    elapsed_s: float = Field(ge=0, description="wall-clock seconds over all resumes")
    train_s: float = Field(ge=0, description="seconds of it in updates")
    num_records: int = Field(ge=0, description="records of metrics.jsonl written so far")
    logged_s: float = Field(ge=0, description="train_s at the last log record")
    windows: dict[str, Any] = Field(description="position in the data")
    interval: dict[str, Any] = Field(description="sums since the last log record")
    files: dict[str, int] = Field(default_factory=dict, description="bytes of each tensor file")


class Checkpoint(NamedTuple):
    """A checkpoint read back."""

    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: TrainingState


def save_checkpoint(
    folder: Path,
    model: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: TrainingState,
    keep: int,
) -> Path:
    """Write a checkpoint whole, then remove all but the last.

    Args:
        folder: Of all checkpoints of the run; made if absent.
        state: `files` is filled in here.
        keep: Checkpoints kept, the new one among them.

    Returns:
        The checkpoint's folder.
    """
    require_space(folder, sum(t.nbytes for t in (*model.values(), *optimizer.values())))
    final = folder / f"step_{state.step:08d}"
    temporary = _temporary(folder)
    temporary.mkdir()
    try:
        sizes = {MODEL: _save(temporary / MODEL, model)}
        sizes[OPTIMIZER] = _save(temporary / OPTIMIZER, optimizer)
        text = state.replace(files=sizes).model_dump_json(indent=1)
        write_whole(temporary / STATE, text.encode())
        if final.exists():
            _remove(final)
        temporary.rename(final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _sync(folder)
    tidy_checkpoints(folder, keep)
    return final


def tidy_checkpoints(folder: Path, keep: int) -> None:
    """Remove all but the last checkpoints, and what a kill left half-written or half-removed.

    Args:
        folder: It must have no other writer.
        keep: Checkpoints kept; the newest whole one is kept in any case.
    """
    stay = {*_steps(folder)[:keep], latest_checkpoint(folder)}
    for path in folder.glob("step_*"):
        if path not in stay:
            _remove(path)
    for path in folder.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(path)


def _remove(checkpoint: Path) -> None:
    """Remove a checkpoint; killed within, it leaves nothing that has a checkpoint's name."""
    hidden = _temporary(checkpoint.parent)
    checkpoint.rename(hidden)
    shutil.rmtree(hidden)


def _temporary(folder: Path) -> Path:
    return folder / f"{_TEMPORARY}{secrets.token_hex(4)}"


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint, or None; damaged ones are named in the log."""
    for path in _steps(folder):
        try:
            read_state(path)
        except CheckpointError as error:
            _log.warning("passed over a checkpoint that is not whole: %s", error)
        else:
            return path
    return None


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint's folder.

    Raises:
        CheckpointError: It is not whole, or of an unknown format version.
    """
    state = read_state(path)
    model = _load(path / MODEL)
    check_tensors(model, state.model, path / MODEL, _FIX)
    return Checkpoint(model, _load(path / OPTIMIZER), state)


def save_weights(folder: Path, model: Mapping[str, Tensor], weights: Weights, table: Path) -> None:
    """Write a folder that `load_checkpoint` reads by itself: weights, config and the table."""
    folder.mkdir(parents=True, exist_ok=True)
    _save(folder / MODEL, model)
    link_table(table, folder / TABLE)
    write_whole(folder / CONFIG, weights.model_dump_json(indent=1).encode())


def link_table(source: Path, target: Path) -> None:
    """Put a table beside weights: one file under two names where the disk allows, or a copy."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def load_checkpoint(folder: Path | str, table: Table | None = None) -> Shadow:
    """Build a model from a folder of weights: a run's `final`, or one of its checkpoints.

    Args:
        folder: Holds model.safetensors and config.json or state.json.
        table: By default the table.npz in the folder, or, of a checkpoint, in its run's folder.

    Returns:
        The model on the CPU, in evaluation mode.

    Raises:
        CheckpointError: The folder is not whole, or its weights do not fit its config.
        LayoutError: The table is absent, or not the one that the weights belong to.
    """
    folder = Path(folder)
    weights, path = read_weights(folder), folder / MODEL
    tensors = _load(path)
    check_tensors(tensors, weights.model, path, _FIX)
    model = Shadow(weights.model, table or _find_table(folder, weights))
    load_tensors(model, tensors, path)
    return model.eval()


def load_tensors(model: Shadow, tensors: Mapping[str, Tensor], where: object) -> None:
    """Put weights into a model, all of them and no others.

    Raises:
        CheckpointError: Names or shapes differ; every difference is named.
    """
    expected = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    found = {name: tuple(t.shape) for name, t in tensors.items()}
    if expected != found:
        wrong = sorted({n for n, _ in expected.items() ^ found.items()})
        shown = ", ".join(f"{n} {found.get(n)} for {expected.get(n)}" for n in wrong)
        raise CheckpointError(where, "hold exactly the weights of its config", shown, _FIX)
    model.load_state_dict(dict(tensors))
    model.refresh()


def read_weights(folder: Path) -> Weights:
    """Read what a folder of weights says of them.

    Raises:
        CheckpointError: It holds neither config.json nor state.json, or an unknown version.
    """
    if (folder / CONFIG).is_file():
        return _parse(Weights, folder / CONFIG)
    return read_state(folder)


def _find_table(folder: Path, weights: Weights) -> Table:
    places = (folder / TABLE, folder.parent.parent / TABLE)
    path = next((p for p in places if p.is_file()), None)
    if path is None:
        raise LayoutError(places[0], "be the weights' table", "no such file", "Pass `table`.")
    if (found := sha256_file(path)) != weights.table_sha256:
        must = f"be the table that the weights belong to, sha256 {weights.table_sha256}"
        raise LayoutError(path, must, found, "Pass the right one as `table`.")
    return Table.load(path)


def read_state(path: Path) -> TrainingState:
    """Read a checkpoint's state, and check that its other files are whole.

    Raises:
        CheckpointError: It is not whole, or of an unknown format version.
    """
    state = _parse(TrainingState, path / STATE)
    if set(state.files) != {MODEL, OPTIMIZER}:
        must = f"state the bytes of {MODEL} and {OPTIMIZER}"
        raise CheckpointError(path / STATE, must, sorted(state.files) or "none", _FIX)
    for name, size in state.files.items():
        found = (path / name).stat().st_size if (path / name).is_file() else "no file"
        if found != size:
            raise CheckpointError(path / name, f"have {size} bytes", found, _FIX)
    return state


def _parse(schema: type[S], path: Path) -> S:
    with reading(CheckpointError, path, f"describe {schema.__name__}", _FIX, ConfigError):
        return schema.parse(load_json(path), path)


def _save(path: Path, tensors: Mapping[str, Tensor]) -> int:
    whole = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    # one entry: the library writes several in an order that changes from call to call
    safetensors.torch.save_file(whole, path, metadata={"format": "pt"})
    _sync(path)
    return path.stat().st_size


def _load(path: Path) -> dict[str, Tensor]:
    with reading(CheckpointError, path, "be a readable safetensors file", _FIX, SafetensorError):
        return safetensors.torch.load_file(path)


def _steps(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, newest first."""
    return sorted(folder.glob("step_*"), reverse=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
