"""Kill the whole chain in the middle of its work, run it again, and compare every output.

The chain is the `proof` flow in the embedded default, on a few words and pictures and with updates
by the dozen. A death of the flow comes inside of a stage's own writing; a death of the trainer is
for the flow's retry to mend.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from flows.launch import sealed_environment
from shadow_model.store import Store
from tasks.child import marked_processes
from tests.kill.die_at import LOG

ROOT = Path(__file__).parents[2]
DIE_AT = Path(__file__).with_name("die_at.py")
WRITES = {
    "table": r"/tmp/table-[^/]*/",
    "pack": r"/tmp/pack-[^/]*(/|$)",
    "publish": r"/tmp/(sources|remap|proof)-[^/]*$",
}
"""What of a stage's own writing to die in, as a pattern of the paths it changes."""
TIMED = frozenset({"smoke", "speed", "report", "generate", "export"})
"""Stages whose outputs state times, or are made of such."""
RECIPE = """
base = "tiny"
name = "killed"

[[sources.inputs]]
name = "words"
kind = "text"
path = "words"

[[sources.inputs]]
lane = "understanding"
name = "squares"
kind = "pictures"
path = "squares"

[sources]
num_pieces = 400
shard_tokens = 2048
val_every = 3

[pack]
val_every = 3

[smoke]
steps = 4
growth_step = 2
windows = 1
ctx_tokens = 1024
loss_fall = 0.0

[speed]
ctx_tokens = 64
windows = 1
num_lang = 256

[proof.model]
width = 32
heads = 4
index_block = 16
index_top = 2

[proof.train]
tokens = 4096
batch_tokens = 128
max_epochs = 64
lengths = [{ from_frac = 0, ctx_tokens = 32 }, { from_frac = 0.75, ctx_tokens = 64 }]
sparse_from_ctx_tokens = 64
log_every_steps = 8
evaluate_every_steps = 16
evaluate_ctx_tokens = 32
evaluate_tokens = 256
evaluate_final_tokens = 256
checkpoint_every_steps = 4
device = "cpu"
threads = 1
"""


def write_recipe(folder: Path) -> Path:
    """Write a recipe file with its data beside it."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefgh"), 5)) for _ in range(60)]
    (folder / "words").mkdir(parents=True)
    for i in range(40):
        lines = [" ".join(rng.choice(words, 12)) for _ in range(30)]
        (folder / "words" / f"{i:02}.txt").write_text("\n".join(lines))
    (folder / "squares").mkdir()
    for i in range(48):
        pixels = np.full((64, 64, 3), rng.integers(0, 255, 3), np.uint8)
        pixels[rng.integers(32) :, rng.integers(32) :] = rng.integers(0, 255, 3)
        Image.fromarray(pixels).save(folder / "squares" / f"square {words[i]}.png")
    path = folder / "killed.toml"
    path.write_text(RECIPE)
    return path


class Chain:
    """The small chain in one store.

    Args:
        recipe: From `write_recipe`.
        store: Folder of the store.
    """

    def __init__(self, recipe: Path, store: Path) -> None:
        self._recipe, self.store = recipe, store

    def start(
        self, pattern: str | None = None, dies_at: int = 0, log: Path | None = None
    ) -> subprocess.Popen[str]:
        """Start the flow; with a pattern it dies at its n-th change of a path that fits."""
        home = self.store / "prefect"
        home.mkdir(parents=True, exist_ok=True)
        job = {
            "flow": "proof",
            "parameters": {"recipe": str(self._recipe), "store": str(self.store)},
        }
        head = ["-m"] if pattern is None else [str(DIE_AT), pattern, str(dies_at)]
        more = {"OMP_NUM_THREADS": "1", "SHADOW_KILLED": str(self.store)}
        if log is not None:
            more[LOG] = str(log)
        return subprocess.Popen(
            [sys.executable, *head, "flows.embedded", json.dumps(job)],
            env=sealed_environment({**os.environ, **more}, home),
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self) -> str:
        """Run the flow to its end and return its output."""
        child = self.start()
        output, _ = child.communicate()
        assert child.returncode == 0, output
        return output

    def kill_trainer(self, after_s: float) -> tuple[int, str]:
        """Run the flow; kill its first training process some time after it was started.

        Returns:
            The flow's exit code and output: its own retry goes on with the training.
        """
        child = self.start()
        while child.poll() is None and not (trainer := next(self.trainers(), None)):
            time.sleep(0.01)
        assert trainer is not None, "the flow ended without a training"
        time.sleep(after_s)
        os.kill(trainer, signal.SIGKILL)
        output, _ = child.communicate()
        return child.returncode, output

    def trainers(self) -> Iterator[int]:
        """Yield the training processes of this store."""
        for pid in marked_processes(f"SHADOW_KILLED={self.store}"):
            arguments = Path(f"/proc/{pid}/cmdline")
            if arguments.exists() and b"shadow_model.train.main" in arguments.read_bytes():
                yield pid

    def outputs(self) -> dict[str, str]:
        """Return {stage/file: sha256} of all finished stages but those that state times."""
        return {
            f"{receipt.stage}/{receipt.key}/{output.name}": output.sha256
            for receipt in Store(self.store).receipts()
            if receipt.stage not in TIMED
            for output in receipt.outputs
            if output.name != "metrics.jsonl"
        }

    def left_over(self) -> list[str]:
        """Return what stands in the store's folder of unfinished outputs."""
        return sorted(path.name for path in (self.store / "tmp").glob("*"))
