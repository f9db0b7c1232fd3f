"""`shadow generate`: text, pictures, sounds and clips from an exported model.

`python -m flows.generation '{"flow": "generate", "parameters": {...}}'`, as `flows.launch` starts
it.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from flows.telling import console, run_command, tell_table
from shadow_model.errors import DataError
from shadow_model.export import MODEL_FILE
from shadow_model.generate.making import make
from shadow_model.generate.sampling import Sampling
from shadow_model.store import Store
from shadow_model.table.layout import Kind


def generate(
    store: str,
    prompt: str,
    kind: Kind,
    out: str,
    num: int,
    rows: int,
    temperature: float,
    top_k: int,
    seed: int,
    int8: bool,
    model: str | None = None,
) -> None:
    """Make what is wanted, write it and tell where it is, and how fast it was."""
    path = Path(model) if model else newest_export(Store(store))
    sampling = Sampling(temperature=temperature, top_k=top_k, seed=seed)
    made = make(path, Path(out), prompt, kind, rows, sampling, num, int8)
    tell_table(
        ("document", "files"), [(d.text, "\n".join(map(str, d.files))) for d in made.documents]
    )
    how = "int8 products" if made.int8 else "float products"
    console().print(f"{made.tokens_per_s:.1f} tokens/s, {how}, {made.loops} loops, {path}")


def newest_export(store: Store) -> Path:
    """Return the exported model that a store wrote last.

    Raises:
        DataError: It holds none.
    """
    receipts = [receipt for receipt in store.receipts() if receipt.stage == "export"]
    if not receipts:
        fix = "Run `shadow run`, or name a file with --model."
        raise DataError(store.root, "hold an exported model", "none", fix)
    return store.folder(max(receipts, key=lambda receipt: receipt.ended)) / MODEL_FILE


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    return run_command({"generate": generate}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
