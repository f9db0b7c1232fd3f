"""The page of a repository, made from receipts alone."""

from collections.abc import Iterable, Iterator, Sequence

from shadow_model.receipt import Receipt

_HEAD = """---
tags:
- shadow-proof
- ternary
---
"""
_USE = """```python
from shadow_model import load_checkpoint

model = load_checkpoint("proof/{tag}/final")
```"""


def model_card(receipts: Sequence[Receipt]) -> str:
    """Return README.md: the outcome, what was trained on which data, and every stage's digests."""
    trained = [receipt for receipt in receipts if "held_out" in receipt.counts]
    report = next((r for r in reversed(receipts) if r.stage == "report"), None)
    parts = [
        _HEAD,
        "# Shadow proof run",
        str(report.counts["headline"]) if report else "This run has no report yet.",
        "## Held-out losses, nats a token",
        *_losses(trained),
        "## Weights",
        *(_USE.format(tag=tag_of(receipt)) for receipt in trained[:1]),
        "## Stages",
        *_table(("stage", "key", "sha256 of outputs", "bytes", "seconds"), _stages(receipts)),
        "## Versions",
        *_table(("package", "version"), receipts[-1].versions.items() if receipts else ()),
    ]
    return "\n\n".join(parts) + "\n"


def tag_of(receipt: Receipt) -> str:
    """Return the name of a trained arm's place: its tag, and its seed where that is not 0."""
    arm = receipt.config["arm"]
    return place_of(str(arm["tag"]), int(arm["train"]["seed"]))


def place_of(tag: str, seed: int) -> str:
    """Return the name of an arm's place; see `tag_of`."""
    return tag if seed == 0 else f"{tag}_seed{seed}"


def _losses(trained: Sequence[Receipt]) -> list[str]:
    kinds = list(dict.fromkeys(kind for receipt in trained for kind in receipt.counts["held_out"]))
    rows = ([tag_of(r), *(_shown(r.counts["held_out"].get(k)) for k in kinds)] for r in trained)
    return _table(("arm", *kinds), rows)


def _stages(receipts: Sequence[Receipt]) -> Iterator[tuple[str, ...]]:
    for receipt in receipts:
        record = receipt.as_input()
        digest, size = record.sha256[:16], f"{record.bytes:,}"
        yield receipt.stage, receipt.key[:12], digest, size, f"{receipt.seconds:,.1f}"


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)]


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
