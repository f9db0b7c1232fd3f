"""A run's newest checkpoint in a repository, at a place of its own; its way there and back.

proof/ckpt/<tag>_latest/      the checkpoint's files, and digests.json
proof/ckpt/<tag>.log          what the run has told
proof/ckpt/<tag>.metrics.jsonl

Source: the reference pushes `proof/ckpt/{tag}_latest.pt` and `.log`; these are ours.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from shadow_model.digest import sha256_file
from shadow_model.errors import CheckpointError
from shadow_model.hub.repository import Repository
from shadow_model.reading import load_json, reading
from shadow_model.store import write_whole
from shadow_model.train.checkpoint import latest_checkpoint, read_state
from shadow_model.train.run import CHECKPOINTS, METRICS

PLACE = "proof/ckpt"
_DIGESTS = "digests.json"


def checkpoint_files(work: Path, tag: str) -> dict[str, Path]:
    """Return what to push of a run under way: path in the repository -> file; maybe nothing."""
    newest = latest_checkpoint(work / CHECKPOINTS)
    if newest is None:
        return {}
    files = {path.name: path for path in newest.iterdir() if path.name != _DIGESTS}
    digests = {name: sha256_file(path) for name, path in sorted(files.items())}
    write_whole(newest / _DIGESTS, json.dumps(digests, indent=1).encode())
    files[_DIGESTS] = newest / _DIGESTS
    pushed = {f"{PLACE}/{tag}_latest/{name}": path for name, path in files.items()}
    kept = {f"{PLACE}/{tag}.metrics.jsonl": work / METRICS, f"{PLACE}/{tag}.log": work / "run.log"}
    return {**pushed, **{name: path for name, path in kept.items() if path.exists()}}


def fetch_checkpoint(repository: Repository, tag: str, work: Path) -> Path | None:
    """Lay a run's newest checkpoint of the Hub into its work folder, where there is none yet.

    Args:
        work: The run's work folder.

    Returns:
        The checkpoint, or None where the work has one of its own, or the Hub has none.

    Raises:
        CheckpointError: What lies there is damaged.
    """
    if latest_checkpoint(work / CHECKPOINTS) is not None:
        return None
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work) as name:
        folder = Path(name)
        found = repository.pull(f"{PLACE}/{tag}[._]*", folder)
        latest = folder / PLACE / f"{tag}_latest"
        if not found or not (latest / "state.json").is_file():
            return None
        _check(latest)
        final = work / CHECKPOINTS / f"step_{read_state(latest).step:08d}"
        final.parent.mkdir(exist_ok=True)
        shutil.copyfile(folder / PLACE / f"{tag}.metrics.jsonl", work / METRICS)
        latest.rename(final)
    return final


def _check(folder: Path) -> None:
    fix = "Delete it from the repository, or train from the start without the repository."
    with reading(CheckpointError, folder / _DIGESTS, "name the files' digests", fix):
        digests = load_json(folder / _DIGESTS)
    if not isinstance(digests, Mapping):
        raise CheckpointError(folder / _DIGESTS, "name the files' digests", digests, fix)
    for name, digest in digests.items():
        path = folder / Path(name).name
        found = sha256_file(path) if path.is_file() else "no file"
        if found != digest:
            raise CheckpointError(f"{name} of the Hub", f"have sha256 {digest}", found, fix)
