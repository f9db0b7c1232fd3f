"""A folder of own data: which inputs it becomes."""

from pathlib import Path

import pytest

from shadow_model.data.folder import folder_inputs
from shadow_model.errors import DataError


def _touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def _found(folder: Path) -> list[tuple[str, str, Path | None]]:
    return [(i.lane, i.kind, i.path) for i in folder_inputs(folder)]


def test_files_of_each_kind_are_found(tmp_path: Path) -> None:
    _touch(tmp_path, "a/x.txt", "b/y.PNG", "c/z.wav", "d/film.mp4")
    assert _found(tmp_path) == [
        ("knowledge", "text", tmp_path),
        ("understanding", "pictures", tmp_path),
        ("understanding", "sounds", tmp_path),
        ("understanding", "clips", tmp_path),
    ]


def test_named_subfolders_decide_alone(tmp_path: Path) -> None:
    _touch(tmp_path, "text/x.txt", "clips/walk/0001.png", "notes.md")
    assert _found(tmp_path) == [
        ("knowledge", "text", tmp_path / "text"),
        ("understanding", "clips", tmp_path / "clips"),
    ]


@pytest.mark.parametrize("below", ["", "ids/"])
def test_ready_shards_are_ids(tmp_path: Path, below: str) -> None:
    _touch(tmp_path, f"{below}knowledge/web/part_00000.npz", "readme.txt")
    assert _found(tmp_path) == [("knowledge", "ids", tmp_path / below if below else tmp_path)]


def test_a_folder_without_data_is_refused(tmp_path: Path) -> None:
    _touch(tmp_path, "program.exe")
    with pytest.raises(DataError, match="hold subfolders text, parquet, pictures"):
        folder_inputs(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        folder_inputs(tmp_path / "none")
