"""A small table with bins, and an arm that grows, lengthens and turns sparse within 12 updates."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from shadow_model.data.bins import Packed
from shadow_model.digest import sha256_file
from shadow_model.nn.config import ModelConfig
from shadow_model.table.layout import KINDS
from shadow_model.table.store import Table
from shadow_model.table.synthetic import synthetic_spans, synthetic_table
from shadow_model.train.config import ArmConfig, TrainConfig


class Data(NamedTuple):
    """A table and bins on disk."""

    table_path: Path
    bins: Path
    table: Table


def write_data(folder: Path) -> Data:
    """Write table.npz, train.bin, val.bin and packed.json."""
    table = synthetic_table(96, seed=7)
    table.save(folder / "table.npz")
    tokens = {}
    kinds = {}
    for seed, name in enumerate(("train", "val")):
        ids = synthetic_spans(table.layout, 4, 1024, seed).ravel()
        ids.astype("<u4").tofile(folder / f"{name}.bin")
        tokens[name] = len(ids)
        counts = np.bincount(table.layout.kind_of_rows()[ids], minlength=len(KINDS))
        kinds[name] = {kind: int(n) for kind, n in zip(KINDS, counts, strict=True)}
    digest = sha256_file(folder / "table.npz")
    packed = Packed(version=1, lanes=("test",), table=digest, kinds=kinds, **tokens)
    (folder / "packed.json").write_text(packed.model_dump_json())
    return Data(folder / "table.npz", folder, table)


def small_arm() -> ArmConfig:
    """Return 12 updates of 128 tokens in windows of 32 and then 64."""
    model = ModelConfig(
        width=32,
        heads=4,
        prelude=1,
        core=1,
        coda=1,
        index_block=8,
        index_top=2,
        num_query_positions=4,
    )
    train = TrainConfig(
        tokens=12 * 128,
        batch_tokens=128,
        lengths=[
            {"from_frac": 0.0, "ctx_tokens": 32},
            {"from_frac": 0.75, "ctx_tokens": 64},
        ],
        loops=(2, 4),
        growth_at_frac=0.5,
        sparse_from_ctx_tokens=64,
        lr=3e-3,
        log_every_steps=3,
        evaluate_every_steps=4,
        evaluate_ctx_tokens=32,
        evaluate_tokens=128,
        evaluate_final_tokens=256,
        checkpoint_every_steps=4,
        keep_checkpoints=2,
        device="cpu",
        threads=1,
    )
    return ArmConfig(tag="test", model=model, train=train)
