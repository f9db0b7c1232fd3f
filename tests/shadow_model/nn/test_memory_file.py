"""An exported memory: its size, identical outputs, and that another one's file is refused."""

from pathlib import Path

import pytest
import safetensors.torch
import torch

from shadow_model.errors import CheckpointError
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.memory_rows import PackedRows
from shadow_model.nn.model import Shadow
from shadow_model.nn.ngrams import size_for
from shadow_model.table.synthetic import synthetic_spans, synthetic_table

TABLE = synthetic_table(64, 61)
CONFIG = ModelConfig(
    width=32, heads=4, prelude=1, core=1, coda=1, engram_entries=4096, engram_width=64
)
IDS = torch.from_numpy(synthetic_spans(TABLE.layout, 2, 100, 62))[:, :-1]


def _model(seed: int = 0, config: ModelConfig = CONFIG) -> Shadow:
    model = Shadow(config, TABLE, seed)
    with torch.no_grad():
        for engram in model.engrams:
            engram.rows.weight.normal_(generator=torch.Generator().manual_seed(3))
    model.refresh()
    return model.eval()


def test_reloaded_memories_give_identical_outputs(tmp_path: Path) -> None:
    model = _model()
    paths = model.export_memories(tmp_path)
    reloaded = Shadow(CONFIG, TABLE).eval()
    assert not torch.equal(reloaded(IDS).hidden, model(IDS).hidden)
    reloaded.load_memories(tmp_path)
    assert all(isinstance(engram.rows, PackedRows) for engram in reloaded.engrams)
    assert torch.equal(reloaded(IDS).hidden, model(IDS).hidden)
    again = tmp_path / "again"
    again.mkdir()
    for old, new in zip(paths, reloaded.export_memories(again), strict=True):
        assert new.read_bytes() == old.read_bytes()


def test_five_signs_take_a_byte(tmp_path: Path) -> None:
    for module, path in enumerate(_model().export_memories(tmp_path)):
        cells = size_for(4096, 64, module).cells
        tensors = safetensors.torch.load_file(path)
        assert tensors["trits"].shape == (-(-cells // 5),)
        assert path.stat().st_size < cells / 5 + 1500  # scales, primes, multipliers, header


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"seed": 1}, "multipliers"),
        ({"config": CONFIG.replace(engram_width=128)}, "trits"),
        ({"config": CONFIG.replace(engram_entries=4352)}, "trits"),
    ],
)
def test_a_file_of_another_memory_is_refused(
    tmp_path: Path, change: dict[str, object], match: str
) -> None:
    _model(**change).export_memories(tmp_path)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=match):
        _model().load_memories(tmp_path)


def test_a_file_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    _model().export_memories(tmp_path)
    other = _model()
    other.canonical[5] = 4
    with pytest.raises(CheckpointError, match="canonical"):
        other.load_memories(tmp_path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    model = _model()
    path = model.export_memories(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="readable"):
        model.load_memories(tmp_path)
