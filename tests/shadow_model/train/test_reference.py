"""Checkpoints of the reference program: read without pickle, checked whole."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from shadow_model import load_reference
from shadow_model.errors import CheckpointError
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.model import Shadow

CFG = {"d": 64, "prelude": 1, "core": 1, "coda": 1, "flat": 0, "table": "table.npz", "seed": 0}


def _content(data: Any, **cfg: object) -> dict[str, Any]:
    known = {**CFG, **cfg}
    shape = {name: known[name] for name in ("prelude", "core", "coda", "flat")}
    config = ModelConfig.parse({"width": known["d"], "integer_products": False, **shape}, "test")
    state = Shadow(config, data.table, seed=5).state_dict()
    return {"state": state, "cfg": known, "K": 2, "step": 5, "hist": [(0, 6.8)]}


def _save(content: object, folder: Path) -> Path:
    torch.save(content, folder / "proof_latest.pt")
    return folder / "proof_latest.pt"


@pytest.mark.parametrize("flat", [0, 3])
def test_weights_come_back(
    flat: int, data: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = _content(data, flat=flat)
    content["state"] = {**content["state"], "canonical": torch.arange(4)}
    with caplog.at_level("INFO"):
        model = load_reference(_save(content, tmp_path), data.table)
    assert "ignored K, canonical, hist, step" in caplog.text
    assert (model.config.heads, model.config.kv_heads, model.config.flat) == (8, 1, flat)
    assert not model.config.integer_products
    own = model.state_dict()
    assert all(torch.equal(own[n], t) for n, t in content["state"].items() if n in own)
    assert len(own) == len(content["state"]) - 1
    assert not model.training


def test_heads_of_the_file_count(data: Any, tmp_path: Path) -> None:
    content = _content(data)
    content["cfg"]["heads"] = 4
    with pytest.raises(CheckpointError, match=r"pre\.0\.k\.weight \(8, 64\) for \(16, 64\)"):
        load_reference(_save(content, tmp_path), data.table)


@pytest.mark.parametrize("change", ["shape", "missing", "extra"])
def test_other_weights_are_named(change: str, data: Any, tmp_path: Path) -> None:
    content = _content(data)
    state = dict(content["state"])
    if change == "shape":
        state["inp.weight"] = torch.zeros(64, 500)
    elif change == "missing":
        del state["inp.weight"]
    else:
        state["inp.bias"] = torch.zeros(64)
    with pytest.raises(CheckpointError, match=r"inp\."):
        load_reference(_save({**content, "state": state}, tmp_path), data.table)


def test_memory_is_refused_by_name(data: Any, tmp_path: Path) -> None:
    content = _content(data)
    content["state"] = {**content["state"], "engrams.pre.rows": torch.zeros(2)}
    with pytest.raises(CheckpointError, match=r"engrams\.pre\.rows"):
        load_reference(_save(content, tmp_path), data.table)


def _with_memories(data: Any) -> dict[str, Any]:
    content = _content(data, engram_entries=1024)
    config = ModelConfig(width=64, prelude=1, core=1, coda=1, engram_entries=1024, engram_width=32)
    return {**content, "state": Shadow(config, data.table, seed=5).state_dict()}


def test_memories_that_fit_are_taken(data: Any, tmp_path: Path) -> None:
    content = _with_memories(data)
    model = load_reference(_save(content, tmp_path), data.table)
    own = model.state_dict()
    assert own.keys() == content["state"].keys()
    assert all(torch.equal(own[n], t) for n, t in content["state"].items())


def test_memories_of_another_size_are_refused_by_name(data: Any, tmp_path: Path) -> None:
    content = _with_memories(data)
    content["state"]["engrams.1.rows.weight"] = torch.zeros(7, 2)
    with pytest.raises(CheckpointError, match=r"unknown memory.*engrams\.1\.rows\.weight \(7, 2\)"):
        load_reference(_save(content, tmp_path), data.table)


def test_cfg_without_a_shape(data: Any, tmp_path: Path) -> None:
    content = _content(data)
    del content["cfg"]["core"]
    with pytest.raises(CheckpointError, match="core"):
        load_reference(_save(content, tmp_path), data.table)


class _Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("/tmp/never"),))


@pytest.mark.parametrize("kind", ["absent", "text", "pickle", "hostile", "list"])
def test_what_is_no_checkpoint(kind: str, data: Any, tmp_path: Path) -> None:
    path = tmp_path / "proof_latest.pt"
    if kind == "text":
        path.write_text("not a checkpoint")
    elif kind == "pickle":
        path.write_bytes(pickle.dumps({"state": {}, "cfg": {}}, protocol=2))
    elif kind == "hostile":
        _save({"state": _Hostile(), "cfg": {}}, tmp_path)
    elif kind == "list":
        _save([1, 2], tmp_path)
    with pytest.raises(CheckpointError, match=r"proof_latest\.pt"):
        load_reference(path, data.table)
    assert not Path("/tmp/never").exists()
