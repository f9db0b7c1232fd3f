"""Bins, tables, vectors, checkpoints, metrics, receipts: damaged, oversized, hostile files."""

import json
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from shadow_model import load_checkpoint, load_reference
from shadow_model.data.bins import PACKED, Packed, open_bins
from shadow_model.digest import sha256_file
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.model import Shadow
from shadow_model.receipt import Receipt
from shadow_model.report.entropy import held_out_entropy
from shadow_model.report.pairing import TRANSITIONS, read_windows
from shadow_model.report.runs import read_run
from shadow_model.store import read_receipt
from shadow_model.table.measure import read_ratings
from shadow_model.table.store import Table
from shadow_model.table.synthetic import synthetic_table
from shadow_model.table.vectors import read_packed, read_vectors
from shadow_model.train.checkpoint import (
    TrainingState,
    Weights,
    read_checkpoint,
    save_checkpoint,
    save_weights,
)
from shadow_model.train.config import LengthStage, TrainConfig

TABLE = synthetic_table(40, seed=1)
WIDE = {"width": 32, "heads": 4, "prelude": 1, "core": 1, "coda": 1}
MODEL = ModelConfig(**WIDE)
TRAIN = TrainConfig(
    tokens=4096, batch_tokens=1024, lengths=(LengthStage(from_frac=0, ctx_tokens=64),)
)
REFERENCE = {"d": 64, "prelude": 1, "core": 1, "coda": 1, "flat": 0}
BINS = ("train.bin", "val.bin", PACKED)
SLOW = {*BINS, "table.npz", "final/table.npz"}
"""A table of all bands is read each time."""
CHECKPOINT = ("model.safetensors", "optimizer.safetensors", "state.json")
FINAL = ("final/model.safetensors", "final/config.json", "final/table.npz")
RECORDS = [
    {"event": "start", "step": 0, "parameters": 9},
    {"event": "evaluate", "step": 1, "tokens": 9, "elapsed_s": 1.0, "loss": 3.5},
    {"event": "final", "step": 1, "annealed": True},
]
WINDOWS = {
    "starts": np.arange(6),
    "sums": np.ones((6, 4)),
    "counts": np.ones((6, 4), np.int64),
    "transition_sums": np.ones((6, len(TRANSITIONS))),
    "transition_counts": np.ones((6, len(TRANSITIONS)), np.int64),
    "ctx_tokens": np.int64(8),
}


class Reader(NamedTuple):
    """How one of the files of a folder is read."""

    read: Callable[[Path], object]
    loose: bool = False


def read_bins(path: Path) -> object:
    return open_bins(path.parent, path.parent / "table.npz", ctx=16)


READERS = {
    "table.npz": Reader(Table.load),
    **dict.fromkeys(BINS, Reader(read_bins)),
    "vectors.npy": Reader(read_vectors),
    "vectors.safetensors": Reader(read_vectors),
    "codes.npy": Reader(read_packed),
    "ratings.csv": Reader(read_ratings, loose=True),
    **dict.fromkeys(CHECKPOINT, Reader(lambda path: read_checkpoint(path.parent))),
    **dict.fromkeys(FINAL, Reader(lambda path: load_checkpoint(path.parent))),
    "proof_latest.pt": Reader(lambda path: load_reference(path, TABLE)),
    "metrics.jsonl": Reader(partial(read_run, "proof"), loose=True),
    "heldout.npz": Reader(lambda path: read_windows(path) or 1),
    "receipt.json": Reader(read_receipt),
}


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one sound file of each kind."""
    folder = tmp_path_factory.mktemp("sound")
    TABLE.save(folder / "table.npz")
    digest = sha256_file(folder / "table.npz")
    for name in ("train.bin", "val.bin"):
        np.arange(500, dtype="<u4").tofile(folder / name)
    packed = Packed(version=1, lanes=("a",), train=500, val=500, table=digest)
    (folder / PACKED).write_text(packed.model_dump_json())
    np.save(folder / "vectors.npy", np.ones((9, 4), np.float32))
    save_file({"v": np.ones((9, 4), np.float32)}, folder / "vectors.safetensors")
    np.save(folder / "codes.npy", np.zeros((9, 64), np.uint8))
    (folder / "ratings.csv").write_text("cat,dog,7.5\ncat,stone,1\n")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in RECORDS))
    np.savez(folder / "heldout.npz", **WINDOWS)
    (folder / "receipt.json").write_text(Receipt(stage="a", key="b").model_dump_json())
    _save_models(folder, digest)
    return folder


def _save_models(folder: Path, digest: str) -> None:
    model = Shadow(MODEL, TABLE, seed=3).state_dict()
    said: dict[str, Any] = {"tag": "proof", "model": MODEL, "table_sha256": digest, "loops": 2}
    weights = Weights(**said, step=4, tokens=9)
    save_weights(folder / "final", model, weights, folder / "table.npz")
    seconds = dict.fromkeys(("elapsed_s", "train_s", "logged_s"), 0.5)
    more: dict[str, Any] = {"train": TRAIN, "num_records": 1, "windows": {}, "interval": {}}
    state = TrainingState(**said, step=4, tokens=9, **seconds, **more)
    saved = save_checkpoint(folder / "work", model, {"a": torch.ones(2)}, state, keep=1)
    for name in CHECKPOINT:
        shutil.copy(saved / name, folder / name)
    torch.save(reference(), folder / "proof_latest.pt")


def reference(**changes: Any) -> dict[str, Any]:
    """Return the content of a reference checkpoint."""
    shape = {**REFERENCE, "width": 64}
    del shape["d"]
    config = ModelConfig.parse({**shape, "integer_products": False, "coda_alpha": False}, "test")
    state = Shadow(config, TABLE, seed=5).state_dict()
    return {"state": {**state}, "cfg": dict(REFERENCE), "K": 2, "step": 5, **changes}


@pytest.fixture
def place(sound: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of that folder, to be damaged."""
    folder = tmp_path / "place"
    shutil.copytree(sound, folder)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", READERS)
def test_a_sound_file_is_read(name: str, sound: Path) -> None:
    assert READERS[name].read(sound / name) is not None


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_not_there(name: str, place: Path, gone: Any, refusal: Any) -> None:
    path, reader = place / name, READERS[name]
    gone(path)
    if name == "heldout.npz" and gone.__name__ == "absent":
        assert reader.read(path) == 1, "an arm may have kept none"
    else:
        refusal(reader.read, path if name != "final/config.json" else path.with_name("state.json"))


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_something_else(
    name: str, place: Path, damaged: Any, refusal: Any, tolerance: Any
) -> None:
    path, reader = place / name, READERS[name]
    damaged(path)
    if reader.loose:
        tolerance(reader.read, path)
    else:
        refusal(reader.read, path)


def archive(path: Path, **changes: Any) -> None:
    """Write an .npz again with some arrays changed, or left out where None."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    kept = {name: array for name, array in {**arrays, **changes}.items() if array is not None}
    np.savez(path, **kept)


def bits(value: int) -> np.ndarray:
    changed = TABLE.bits.copy()
    changed[3, 5] = value
    return changed


def bias(value: float) -> np.ndarray:
    changed = TABLE.bias.copy()
    changed[7] = value
    return changed


def record(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def ids(path: Path, *values: int) -> None:
    content = np.fromfile(path, "<u4")
    content[: len(values)] = values
    content.tofile(path)


def tensors(path: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change all tensors of our own file of weights."""
    found = {name: change(t.numpy()) for name, t in Shadow(MODEL, TABLE).state_dict().items()}
    save_file(found, path)


def with_bytes_said(path: Path) -> None:
    record(
        path.with_name("state.json"), files={n: _size(path.with_name(n)) for n in CHECKPOINT[:2]}
    )


def _size(path: Path) -> int:
    return path.stat().st_size


def header(entries: dict[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + data


def state_with(path: Path, **weights: Any) -> None:
    content = reference()
    torch.save({**content, "state": {**content["state"], **weights}}, path)


def cfg_with(path: Path, **cfg: Any) -> None:
    torch.save(reference(cfg={**REFERENCE, **cfg}), path)


def npy(path: Path, array: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, array)


def npy_header(path: Path, shape: tuple[int, ...]) -> None:
    with path.open("wb") as file:
        said = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, said)
        file.write(bytes(64))


def line(path: Path, text: str) -> None:
    path.write_text(json.dumps(RECORDS[1]) + "\n" + text + "\n")


NESTED = "[" * 100_000 + "]" * 100_000
ENTRY = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
STRIDED = torch.zeros(1).expand(64, 512)
BAD: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "table: lacks a field": ("table.npz", lambda p: archive(p, bias=None), "bias"),
    "table: shape": ("table.npz", lambda p: archive(p, bits=TABLE.bits[:-1]), "have bits"),
    "table: type": ("table.npz", lambda p: archive(p, bias=TABLE.bias * 1j), "complex"),
    "table: no bit": ("table.npz", lambda p: archive(p, bits=bits(2)), "0 and 1"),
    "table: NaN": ("table.npz", lambda p: archive(p, bias=bias(np.nan)), "nan at row 7"),
    "table: absurd rows": ("table.npz", lambda p: archive(p, n_lang=np.int64(1 << 60)), "layout"),
    "table: infinite rows": ("table.npz", lambda p: archive(p, n_lang=np.inf), "layout"),
    "table: many rows": ("table.npz", lambda p: archive(p, n_lang=np.arange(3)), "n_lang"),
    "table: a number as names": (
        "table.npz",
        lambda p: archive(p, ctrl_names=np.array(3)),
        "layout",
    ),
    "table: nested names": (
        "table.npz",
        lambda p: archive(p, ctrl_names=np.array(NESTED)),
        "nested",
    ),
    "table: far old id": (
        "table.npz",
        lambda p: archive(p, lang_old_ids=np.arange(40) + (1 << 40)),
        "old ids",
    ),
    "table: an .npy": ("table.npz", lambda p: npy(p, TABLE.bits), "table.npz"),
    "bin: half a token": ("val.bin", lambda p: p.write_bytes(p.read_bytes()[:-2]), "4 bytes"),
    "bin: no window": ("val.bin", lambda p: p.write_bytes(p.read_bytes()[:40]), "window"),
    "bin: fewer than said": ("train.bin", lambda p: p.write_bytes(p.read_bytes()[:-4]), "500"),
    "bin: no row": ("train.bin", lambda p: ids(p, 0, 1 << 31), "2147483648 at position 1"),
    "packed: version": (PACKED, lambda p: record(p, version=9), "version"),
    "packed: negative": (PACKED, lambda p: record(p, train=-5), "train"),
    "packed: infinite": (PACKED, lambda p: p.write_text('{"train": 1e999}'), "finite"),
    "packed: nested": (PACKED, lambda p: p.write_text(NESTED), "nested"),
    "packed: unknown field": (PACKED, lambda p: record(p, colour=1), "colour"),
    "packed: other table": (PACKED, lambda p: record(p, table="0" * 64), "table"),
    "vectors: texts": ("vectors.npy", lambda p: npy(p, np.array(["a"])), "floats"),
    "vectors: shape": ("vectors.npy", lambda p: npy(p, np.ones(3)), "2-D"),
    "vectors: NaN": ("vectors.npy", lambda p: npy(p, np.full((2, 2), np.nan)), "row 0"),
    "vectors: terabytes": ("vectors.npy", lambda p: npy_header(p, (1 << 50, 4)), "states"),
    "vectors: an archive": (
        "vectors.npy",
        lambda p: archive(p.with_name("heldout.npz")) or shutil.copy(p.with_name("heldout.npz"), p),
        "npy",
    ),
    "tensor: shape": (
        "vectors.safetensors",
        lambda p: p.write_bytes(header({"v": {**ENTRY, "shape": 4}}, bytes(16))),
        "states",
    ),
    "tensor: offsets": (
        "vectors.safetensors",
        lambda p: p.write_bytes(header({"v": {**ENTRY, "data_offsets": [-16, 0]}}, bytes(16))),
        "states",
    ),
    "tensor: terabytes": (
        "vectors.safetensors",
        lambda p: p.write_bytes(header({"v": {**ENTRY, "shape": [1 << 40, 2]}}, bytes(16))),
        "states",
    ),
    "tensor: header": (
        "vectors.safetensors",
        lambda p: p.write_bytes((1 << 62).to_bytes(8, "little") + b"{}"),
        "states",
    ),
    "codes: floats": ("codes.npy", lambda p: npy(p, np.ones((2, 64))), "uint8"),
    "ratings: words only": ("ratings.csv", lambda p: p.write_text("a,b,1\ncat,dog\n"), "line 2"),
    "ratings: NaN": ("ratings.csv", lambda p: p.write_text("a,b,1\ncat,dog,nan\n"), "line 2"),
    "ratings: huge cell": ("ratings.csv", lambda p: p.write_text("a" * 200_000), "field"),
    "weights: integers": (
        "final/model.safetensors",
        lambda p: tensors(p, lambda a: a.astype(np.int32)),
        "floats",
    ),
    "weights: NaN": ("final/model.safetensors", lambda p: tensors(p, lambda a: a * np.nan), "NaN"),
    "weights: shape": (
        "final/model.safetensors",
        lambda p: tensors(p, lambda a: a[..., None]),
        "for",
    ),
    "weights: absurd model": (
        "final/model.safetensors",
        lambda p: record(
            p.with_name("config.json"), model={**MODEL.model_dump(), "width": 16_384, "core": 64}
        ),
        "values",
    ),
    "weights: unknown version": ("final/config.json", lambda p: record(p, version=2), "version"),
    "weights: other table": ("final/table.npz", archive, "belong"),
    "state: nested": ("state.json", lambda p: p.write_text(NESTED), "nested"),
    "state: NaN": ("state.json", lambda p: record(p, elapsed_s=float("nan")), "NaN"),
    "state: no files": ("state.json", lambda p: record(p, files={}), "optimizer"),
    "state: other files": (
        "state.json",
        lambda p: record(p, files={"../../etc/passwd": 9}),
        "model.safetensors",
    ),
    "checkpoint: NaN": (
        "model.safetensors",
        lambda p: (tensors(p, lambda a: a * np.nan), with_bytes_said(p)),
        "NaN",
    ),
    "reference: a list": ("proof_latest.pt", lambda p: torch.save([1], p), "dicts"),
    "reference: no tensors": ("proof_latest.pt", lambda p: state_with(p, a="b"), "str in a"),
    "reference: numbers as names": (
        "proof_latest.pt",
        lambda p: torch.save({"state": {1: torch.ones(1)}, "cfg": REFERENCE}, p),
        "name its weights",
    ),
    "reference: NaN": (
        "proof_latest.pt",
        lambda p: state_with(p, alpha=torch.full((9,), torch.nan)),
        "NaN.* in alpha",
    ),
    "reference: integers": (
        "proof_latest.pt",
        lambda p: state_with(p, alpha=torch.ones(9, dtype=torch.int64)),
        "int64",
    ),
    "reference: sparse": (
        "proof_latest.pt",
        lambda p: state_with(p, alpha=torch.ones(9).to_sparse()),
        "sparse",
    ),
    "reference: one value for all": (
        "proof_latest.pt",
        lambda p: torch.save(reference(state={"inp.weight": STRIDED}), p),
        "4 bytes for 32768 values",
    ),
    "reference: absurd model": (
        "proof_latest.pt",
        lambda p: cfg_with(p, d=16_384, core=64),
        "values",
    ),
    "reference: negative": ("proof_latest.pt", lambda p: cfg_with(p, core=-1), "core"),
    "reference: cfg of texts": ("proof_latest.pt", lambda p: cfg_with(p, d="wide"), "width"),
    "metrics: NaN": ("metrics.jsonl", lambda p: line(p, '{"event": "log", "step": NaN}'), "finite"),
    "metrics: nested": ("metrics.jsonl", lambda p: line(p, NESTED), "nested"),
    "metrics: a list": ("metrics.jsonl", lambda p: line(p, "[1]"), "record"),
    "metrics: step": ("metrics.jsonl", lambda p: line(p, '{"event": "log", "step": -1}'), "step"),
    "windows: lacks an array": ("heldout.npz", lambda p: archive(p, sums=None), "sums"),
    "windows: NaN": ("heldout.npz", lambda p: archive(p, sums=np.full((6, 4), np.nan)), "finite"),
    "windows: shape": ("heldout.npz", lambda p: archive(p, starts=np.array(3)), "shape"),
    "windows: several ctx": ("heldout.npz", lambda p: archive(p, ctx_tokens=np.arange(2)), "ctx"),
    "windows: texts": ("heldout.npz", lambda p: archive(p, starts=np.array(["a"] * 6)), "starts"),
    "receipt: version": ("receipt.json", lambda p: record(p, version=2), "version"),
    "receipt: nested": ("receipt.json", lambda p: p.write_text(NESTED), "nested"),
    "receipt: a way out": (
        "receipt.json",
        lambda p: record(p, outputs=[{"name": "../../x", "sha256": "", "bytes": 1}]),
        "below the stage's folder",
    ),
    "receipt: a stage above": ("receipt.json", lambda p: record(p, stage="../.."), "stage"),
    "receipt: a key above": ("receipt.json", lambda p: record(p, key="/etc"), "key"),
}


@pytest.mark.parametrize("name", READERS)
def test_changed_bytes_give_a_result_or_an_error_of_ours(
    name: str, place: Path, changes: Any
) -> None:
    changes(READERS[name].read, place / name, share=0.2 if name in SLOW else 1.0)


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_holds_what_it_must_not(case: str, place: Path, refusal: Any) -> None:
    name, damage, said = BAD[case]
    damage(place / name)
    error = refusal(READERS[name].read, place / name)
    assert re.search(said, str(error)), str(error)


@pytest.mark.parametrize("name", ["table.npz", "heldout.npz", "vectors.npy", "codes.npy"])
def test_pickled_arrays_are_never_loaded(name: str, place: Path, canary: Any, refusal: Any) -> None:
    path, objects = place / name, np.array([canary], object)
    if path.suffix == ".npy":
        npy(path, objects)
    else:
        archive(path, **{"bits" if name == "table.npz" else "sums": objects})
    assert "never loaded" in refusal(READERS[name].read, path).found


@pytest.mark.parametrize("form", ["torch", "old torch", "plain", "in the state", "in the cfg"])
def test_code_in_a_reference_checkpoint_is_never_run(
    form: str, place: Path, canary: Any, refusal: Any
) -> None:
    path = place / "proof_latest.pt"
    if form == "plain":
        path.write_bytes(pickle.dumps({"state": canary, "cfg": {}}))
    elif form == "in the state":
        state_with(path, evil=canary)
    elif form == "in the cfg":
        cfg_with(path, core=canary)
    else:
        torch.save(canary, path, _use_new_zipfile_serialization=form == "torch")
    refusal(READERS[path.name].read, path)


def test_a_table_that_expands_to_more_than_it_says_is_refused(place: Path, refusal: Any) -> None:
    path = place / "table.npz"
    many = np.zeros(((1 << 16) + 28_683, 512), np.uint8)
    np.savez_compressed(path, **{**dict(np.load(path)), "bits": many})
    assert "have bits" in str(refusal(Table.load, path))


def test_a_bin_of_other_rows_has_no_entropy(place: Path, refusal: Any) -> None:
    ids(place / "val.bin", 1 << 31)
    refusal(lambda path: held_out_entropy(path, TABLE.layout), place / "val.bin")
