"""The exported file: small, whole, and the same model when it is read back."""

from pathlib import Path

import numpy as np
import pytest
import torch

from shadow_model.errors import CheckpointError, ConfigError
from shadow_model.export import load_export, write_export
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.model import Shadow, num_body_parameters
from shadow_model.table.store import Table
from shadow_model.table.synthetic import synthetic_table
from shadow_model.train.checkpoint import Weights

CONFIG = ModelConfig(width=32, heads=4, prelude=1, core=2, coda=1, index_block=16, index_top=2)
TABLE = synthetic_table(64, 61)
IDS = torch.randint(0, TABLE.num_rows, (2, 100), generator=torch.Generator().manual_seed(0))


def weights_of(config: ModelConfig) -> Weights:
    """Return what a folder of such weights would say."""
    return Weights(tag="proof", model=config, table_sha256="0" * 64, loops=4, step=1, tokens=1)


@pytest.mark.parametrize(
    "change",
    [{}, {"flat": 3}, {"integer_products": False}, {"engram_entries": 2048, "engram_width": 32}],
    ids=["looped", "flat", "float products", "memories"],
)
def test_read_back_it_computes_the_same_bits(change: dict[str, int], tmp_path: Path) -> None:
    config = CONFIG.replace(**change)
    model = Shadow(config, TABLE, seed=3).eval()
    write_export(tmp_path / "m", model, weights_of(config), TABLE)
    read = load_export(tmp_path / "m")
    assert read.stated.loops == 4
    assert all(np.array_equal(getattr(read.table, n), getattr(TABLE, n)) for n in ("bits", "bias"))
    assert np.array_equal(read.table.lang_old_ids, TABLE.lang_old_ids)
    with torch.no_grad():
        expected = model(IDS, 4, True).hidden
        assert torch.equal(read.model(IDS, 4, True).hidden, expected)
        read.model.use_int8()
        assert torch.equal(read.model(IDS, 4, True).hidden, expected)
    body = [p for n, p in read.model.named_parameters() if n.endswith("weight") and "core" in n]
    assert sum(p.numel() for p in body) == 0  # no float weight is held


def test_an_export_of_an_export_is_the_same_file(tmp_path: Path) -> None:
    write_export(tmp_path / "a", Shadow(CONFIG, TABLE, 1), weights_of(CONFIG), TABLE)
    again = load_export(tmp_path / "a")
    write_export(tmp_path / "b", again.model, weights_of(CONFIG), again.table)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_full_size_without_pieces_and_codecs_leaves_them_two_megabytes(tmp_path: Path) -> None:
    layout = TABLE.layout.replace(num_lang=65_536)
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (layout.num_rows, 512), np.uint8)
    counts = rng.zipf(1.3, layout.num_rows).clip(1, 1_000_000)
    old_ids = np.sort(rng.permutation(131_072)[:65_536])
    bias = np.log(counts / counts.sum()).astype(np.float32)
    table = Table(bits, bias, layout, old_ids)
    config = ModelConfig()
    model = Shadow(config, table)
    size = write_export(tmp_path / "m", model, weights_of(config), table)
    assert size.file < 12_000_000
    assert size.file == (tmp_path / "m").stat().st_size
    assert 1.6 <= size.bits_per_weight < 1.601
    num_trits = num_body_parameters(model) - config.num_alphas
    assert size.body == pytest.approx(num_trits / 5, rel=1e-3)


def test_damage_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m"
    write_export(path, Shadow(CONFIG, TABLE, 1), weights_of(CONFIG), TABLE)
    content = path.read_bytes()
    for broken in (b"", content[: len(content) // 2], content.replace(b'"version', b'"revision')):
        path.write_bytes(broken)
        with pytest.raises(CheckpointError, match="be an exported model of version 1"):
            load_export(path)


def test_a_model_without_quantisers_cannot_be_exported(tmp_path: Path) -> None:
    config = CONFIG.replace(quantise=False)
    with pytest.raises(ConfigError, match="be true for export"):
        write_export(tmp_path / "m", Shadow(config, TABLE), weights_of(config), TABLE)
