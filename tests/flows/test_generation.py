"""`shadow generate` end to end on a small exported model: files, speed, and what it refuses."""

import json
from pathlib import Path

import pytest

from flows.generation import main, newest_export
from shadow_model.data.text import Pieces
from shadow_model.errors import DataError
from shadow_model.export import MODEL_FILE, write_export
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.model import Shadow
from shadow_model.receipt import Identity
from shadow_model.store import Store
from shadow_model.table.synthetic import synthetic_table
from shadow_model.train.checkpoint import Weights

CONFIG = ModelConfig(width=32, heads=4, prelude=1, core=1, coda=1)


def job(store: Path, **changes: object) -> list[str]:
    """Return the command's arguments."""
    drawn = {"temperature": 1.0, "top_k": 5, "seed": 4, "num": 2, "rows": 12, "int8": True}
    given = {"store": str(store), "prompt": "the cat", "kind": "text", "out": str(store / "out")}
    return [json.dumps({"flow": "generate", "parameters": {**given, **drawn, **changes}})]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that holds one export."""
    root = tmp_path_factory.mktemp("store")
    pieces = Pieces.train(["the cat sat on the mat and the dog sat on the log. " * 20], 300)
    table = synthetic_table(pieces.size, 1)
    weights = Weights(tag="proof", model=CONFIG, table_sha256="0", loops=2, step=1, tokens=1)
    identity = Identity.of("export", [], {}, ["shadow_model.table.layout"])
    with Store(root).build(identity) as build:
        write_export(build.folder / MODEL_FILE, Shadow(CONFIG, table), weights, table, pieces)
    return root


def test_makes_files_and_tells_the_speed(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(job(store)) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "tokens/s" in told
    texts = [(store / "out" / f"text_{seed}.txt").read_text() for seed in (4, 5)]
    assert all(text.startswith("the cat") for text in texts)
    assert main(job(store, out=str(store / "again"), int8=False)) == 0
    again = [(store / "again" / f"text_{seed}.txt").read_text() for seed in (4, 5)]
    assert again == texts


def test_a_kind_that_was_not_trained_is_refused(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(job(store, kind="clip")) == 2
    assert "must have a codec" in capsys.readouterr().err


def test_a_store_without_an_export_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="hold an exported model"):
        newest_export(Store(tmp_path))
