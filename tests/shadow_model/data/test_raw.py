"""The raw files behind the sources stage."""

from pathlib import Path

import numpy as np
import pytest

from shadow_model.data.id_layout import IdLayout
from shadow_model.data.inputs import SourceInput, SourcesConfig
from shadow_model.data.picture import write_png
from shadow_model.data.raw import embedded_packages, list_raw
from shadow_model.data.shards import write_shard
from shadow_model.data.text import Pieces
from shadow_model.errors import DataError


def config(path: Path, kind: str, **fields: Path) -> SourcesConfig:
    source = SourceInput.parse({"lane": "l", "name": "n", "kind": kind, "path": path}, "test")
    return SourcesConfig(inputs=(source,), **fields)


def names(config: SourcesConfig) -> list[str]:
    return [record.name for record in list_raw(config)]


def test_the_same_files_elsewhere_give_the_same_records(tmp_path: Path) -> None:
    for place in ("here", "there"):
        (tmp_path / place / "sub").mkdir(parents=True)
        (tmp_path / place / "sub" / "a.txt").write_text("text")
        (tmp_path / place / "b.bin").write_text("not read")
    records = list_raw(config(tmp_path / "here", "text"))
    assert records == list_raw(config(tmp_path / "there", "text"))
    assert [(r.name, r.bytes) for r in records] == [("l/n/sub/a.txt", 4)]
    (tmp_path / "here" / "sub" / "a.txt").write_text("taxt")
    assert records != list_raw(config(tmp_path / "here", "text"))


def test_captions_are_raw_files_too(tmp_path: Path) -> None:
    write_png(tmp_path / "a.png", np.zeros((4, 4, 3), np.float32))
    (tmp_path / "a.txt").write_text("caption")
    (tmp_path / "metadata.csv").write_text("file_name,text\n")
    (tmp_path / "b.txt").write_text("of nothing")
    expected = ["l/n/a.png", "l/n/a.txt", "l/n/metadata.csv"]
    assert names(config(tmp_path, "pictures")) == expected


def test_frames_of_a_clip_are_listed_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "walk").mkdir()
    for number in range(2):
        write_png(tmp_path / "walk" / f"{number}.png", np.zeros((4, 4, 3), np.float32))
    assert names(config(tmp_path, "clips")) == ["l/n/walk/0.png", "l/n/walk/1.png"]


def test_ready_ids_come_with_their_layout_and_tokenizer(tmp_path: Path) -> None:
    write_shard(tmp_path / "a" / "b" / "part_0.npz", np.arange(3))
    pieces = Pieces.train(["some text"], 300)
    pieces.save(tmp_path / "pieces.model")
    IdLayout.dense(pieces.size, "pieces.model").save(tmp_path)
    expected = ["l/n/a/b/part_0.npz", "l/n/layout.json", "l/n/pieces.model"]
    assert names(config(tmp_path, "ids")) == expected


def test_the_users_tokenizer_and_codecs_are_raw_files(tmp_path: Path) -> None:
    for name in ("a.txt", "mine.model", "codecs/clip.json", "codecs/clip.safetensors"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = names(
        config(tmp_path, "text", pieces=tmp_path / "mine.model", codecs=tmp_path / "codecs")
    )
    assert found == [
        "l/n/a.txt",
        "pieces/mine.model",
        "codecs/clip.json",
        "codecs/clip.safetensors",
    ]


def test_embedded_data_are_packages_with_versions() -> None:
    source = SourceInput(name="n", kind="demo_text", packages=("numpy",))
    whole = SourcesConfig(inputs=(source,))
    assert embedded_packages(whole) == ["numpy"]
    assert names(whole) == [f"numpy {np.__version__}"]


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none"):
        list_raw(config(tmp_path, "text"))
