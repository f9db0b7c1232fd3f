"""The sources stage as a whole, on small data of a user's own."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shadow_model.data.clip import ClipConfig, write_animated
from shadow_model.data.id_layout import IdLayout
from shadow_model.data.inputs import SourceInput, SourcesConfig
from shadow_model.data.media import MediaConfig, load_codecs
from shadow_model.data.picture import PictureConfig, write_png
from shadow_model.data.shards import is_held_out, list_shards, read_shard, write_shard
from shadow_model.data.sound import SoundConfig, write_wav
from shadow_model.data.sources import build_sources
from shadow_model.data.text import Pieces
from shadow_model.errors import DataError, ShadowError

SMALL = {"first": 8, "second": 4, "components": 0, "fit_vectors": 256}
MEDIA = MediaConfig(
    picture=PictureConfig(side=16, **SMALL),
    sound=SoundConfig(max_seconds=0.5, phase_rounds=2, **SMALL),
    clip=ClipConfig(side=16, frames=2, **SMALL),
)
KINDS = ("text", "pictures", "sounds", "clips")
VAL_EVERY = 3


def source(kind: str, path: Path) -> SourceInput:
    lane = "knowledge" if kind in ("text", "ids") else "understanding"
    return SourceInput.parse({"lane": lane, "name": kind, "kind": kind, "path": path}, "test")


def config(root: Path, kinds: tuple[str, ...] = KINDS, **fields: Any) -> SourcesConfig:
    inputs = tuple(source(kind, root / kind) for kind in kinds)
    small = {"num_pieces": 400, "shard_tokens": 256, "val_every": VAL_EVERY, "media": MEDIA}
    return SourcesConfig(inputs=inputs, quality_items=2, **{**small, **fields})


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each kind of input, with twenty files or so."""
    root, rng = tmp_path_factory.mktemp("raw"), np.random.default_rng(0)
    for kind in KINDS:
        (root / kind).mkdir()
    for number in range(24):
        words = " ".join(f"word{n}" for n in rng.integers(0, 50, 60))
        (root / "text" / f"{number:02d}.txt").write_text(f"{words}\n\tand\u2581 größer\r\n")
        write_png(root / "pictures" / f"noise_{number:02d}.png", rng.random((20, 16, 3)))
        write_wav(root / "sounds" / f"hiss_{number:02d}.wav", rng.random(6000) - 0.5)
        write_animated(root / "clips" / f"snow_{number:02d}.gif", rng.random((2, 16, 16, 3)), 8)
    return root


@pytest.fixture(scope="module")
def built(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("built")
    return out, build_sources(out, config(raw))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_everything_is_written(built: tuple[Path, dict[str, Any]]) -> None:
    out, _ = built
    lanes = {name.rpartition("/")[0] for name in list_shards(out / "ids")}
    assert lanes == {"knowledge/text", *(f"understanding/{kind}" for kind in KINDS[1:])}
    assert set(load_codecs(out / "codecs")) == {"picture", "sound", "clip"}
    for name in ("pictures.png", "sounds.png", "clips.png", "sound_0_decoded.wav"):
        assert (out / "preview" / name).stat().st_size > 100
    layout = IdLayout.load(out / "ids")
    assert layout is not None
    assert layout.vocab == Pieces.load(out / "ids" / "pieces.model").size


def test_texts_come_back_from_the_shards(built: tuple[Path, dict[str, Any]], raw: Path) -> None:
    out, _ = built
    layout, pieces = IdLayout.load(out / "ids"), Pieces.load(out / "ids" / "pieces.model")
    assert layout is not None
    shards = [n for n in list_shards(out / "ids") if n.startswith("knowledge")]
    ids = np.concatenate([read_shard(out / "ids" / name) for name in shards])
    ends = np.flatnonzero(ids == layout.marks["sep"])
    starts = [0, *(ends[:-1] + 1)]
    texts = [pieces.decode(ids[a:b].tolist()) for a, b in zip(starts, ends, strict=True)]
    files = sorted((raw / "text").iterdir())
    assert texts == [path.read_bytes().decode() for path in files]


def test_the_figures_are_those_of_the_shards(built: tuple[Path, dict[str, Any]]) -> None:
    out, figures = built
    layout = IdLayout.load(out / "ids")
    assert layout is not None
    counted = {"train": 0, "val": 0}
    for name in list_shards(out / "ids"):
        ids = read_shard(out / "ids" / name)
        assert ids[-1] == layout.marks["sep"]
        counted["val" if is_held_out(name, VAL_EVERY) else "train"] += len(ids)
    assert {split: sum(of.values()) for split, of in figures["tokens"].items()} == counted
    assert all(of[kind] for of in figures["tokens"].values() for kind in of)
    assert figures["sources"]["understanding/pictures"]["documents"] == 48  # both orders of 24
    assert figures["sources"]["knowledge/text"]["bytes_per_token"] > 1
    assert set(figures["codecs"]) == {"picture", "sound", "clip"}


def test_a_second_build_in_another_place_is_equal_to_the_byte(
    built: tuple[Path, dict[str, Any]], raw: Path, tmp_path: Path
) -> None:
    shutil.copytree(raw, tmp_path / "raw")
    build_sources(tmp_path / "out", config(tmp_path / "raw"))
    assert contents(tmp_path / "out") == contents(built[0])


def test_nothing_held_out_is_seen_by_what_is_fitted(
    built: tuple[Path, dict[str, Any]], raw: Path, tmp_path: Path
) -> None:
    out, changed = built[0], tmp_path / "raw"
    shutil.copytree(raw, changed)
    files = sorted((changed / "text").iterdir())
    for number in _held_out_texts(out):  # reversed, so that sizes and so shards stay as they were
        files[number].write_bytes(files[number].read_bytes().decode()[::-1].encode())
    rng = np.random.default_rng(1)
    for number in _held_out_numbers(out, "pictures", 24):
        write_png(changed / "pictures" / f"noise_{number:02d}.png", rng.random((20, 16, 3)))
    build_sources(tmp_path / "out", config(changed))
    again, before = contents(tmp_path / "out"), contents(out)
    fitted = [name for name in before if name.startswith("codecs/") or "pieces" in name]
    assert len(fitted) == 7
    assert {name: again[name] for name in fitted} == {name: before[name] for name in fitted}
    texts = [name for name in before if again[name] != before[name] and "knowledge" in name]
    assert texts
    assert all(is_held_out(name.removeprefix("ids/"), VAL_EVERY) for name in texts)
    assert again["preview/pictures.png"] != before["preview/pictures.png"]


def _held_out_texts(out: Path) -> list[int]:
    """Return which text files lie in held-out shards: each is one document."""
    layout, number, held = IdLayout.load(out / "ids"), 0, list[int]()
    assert layout is not None
    for name in [n for n in list_shards(out / "ids") if n.startswith("knowledge")]:
        documents = int((read_shard(out / "ids" / name) == layout.marks["sep"]).sum())
        held += range(number, number + documents) if is_held_out(name, VAL_EVERY) else []
        number += documents
    return held


def _held_out_numbers(out: Path, kind: str, files: int) -> list[int]:
    """Return which files lie in held-out shards: shards take equal shares of them in order."""
    names = [n for n in list_shards(out / "ids") if kind in n]
    share = -(-files // len(names))
    return [
        number
        for index, name in enumerate(names)
        if is_held_out(name, VAL_EVERY)
        for number in range(index * share, min(files, (index + 1) * share))
    ]


def test_ready_ids_pass_with_names_and_split_and_text_joins_them(
    built: tuple[Path, dict[str, Any]], raw: Path, tmp_path: Path
) -> None:
    ready = built[0] / "ids"
    other = tmp_path / "more"
    shutil.copytree(raw / "text", other / "text")
    inputs = (source("ids", ready), source("text", other / "text").replace(name="more"))
    joined = config(raw).replace(inputs=inputs)
    figures = build_sources(tmp_path / "out", joined)
    before, after = contents(ready), contents(tmp_path / "out" / "ids")
    assert before.items() <= after.items()
    more = {n.replace("more", "text"): c for n, c in after.items() if "/more/" in n}
    same = {n: c for n, c in before.items() if "/text/" in n}
    assert more == same  # the same texts in the same pieces
    assert figures["pieces"] == built[1]["pieces"]
    assert not (tmp_path / "out" / "codecs").exists()


def test_ids_without_a_layout_are_text(tmp_path: Path) -> None:
    for number in range(12):
        write_shard(tmp_path / "ids" / f"part_{number}.npz", np.arange(100) + number)
    figures = build_sources(tmp_path / "out", config(tmp_path, ("ids",)))
    assert sum(figures["tokens"]["train"].values()) + figures["tokens"]["val"]["text"] == 1200
    assert figures["pieces"] is None
    assert not (tmp_path / "out" / "ids" / "layout.json").exists()


def test_saved_pieces_and_codecs_are_used_as_they_are(
    built: tuple[Path, dict[str, Any]], raw: Path, tmp_path: Path
) -> None:
    out = built[0]
    again = config(
        raw, ("text", "pictures"), pieces=out / "ids" / "pieces.model", codecs=out / "codecs"
    )
    build_sources(tmp_path / "out", again)
    assert contents(tmp_path / "out" / "codecs") == contents(out / "codecs")
    name = "ids/understanding/pictures/part_00000.npz"
    assert contents(tmp_path / "out")[name] == contents(out)[name]


def _spoil_text(raw: Path) -> str:
    (raw / "text" / "05.txt").write_bytes(b"caf\xe9")
    return "05.txt"


def _spoil_picture(raw: Path) -> str:
    (raw / "pictures" / "noise_05.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    return "noise_05.png"


def _spoil_sound(raw: Path) -> str:
    (raw / "sounds" / "hiss_05.wav").write_bytes(b"RIFF")
    return "hiss_05.wav"


def _empty_folder(raw: Path) -> str:
    shutil.rmtree(raw / "clips")
    (raw / "clips").mkdir()
    return "clips"


@pytest.mark.parametrize("spoil", [_spoil_text, _spoil_picture, _spoil_sound, _empty_folder])
def test_bad_input_is_refused_by_name(
    raw: Path, tmp_path: Path, spoil: Callable[[Path], str]
) -> None:
    shutil.copytree(raw, tmp_path / "raw")
    name = spoil(tmp_path / "raw")
    with pytest.raises(DataError) as error:
        build_sources(tmp_path / "out", config(tmp_path / "raw"))
    assert name in error.value.where


def test_a_split_without_some_kind_is_refused_before_anything_is_fitted(
    raw: Path, tmp_path: Path
) -> None:
    with pytest.raises(ShadowError, match="val_every"):
        build_sources(tmp_path / "out", config(raw, val_every=1 << 20))
    assert not (tmp_path / "out" / "codecs").exists()
