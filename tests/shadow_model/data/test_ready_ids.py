"""Ids that a user already has."""

from pathlib import Path

import numpy as np
import pytest

from shadow_model.data.id_layout import IdLayout
from shadow_model.data.inputs import SourceInput, SourcesConfig
from shadow_model.data.ready_ids import (
    ReadyShard,
    count_ready,
    link_shards,
    ready_layout,
    ready_shards,
)
from shadow_model.data.shards import write_shard
from shadow_model.errors import DataError

LAYOUT = IdLayout.dense(300, None)


def ids(path: Path, name: str = "mine") -> SourceInput:
    return SourceInput(lane="lane", name=name, kind="ids", path=path)


def test_shards_below_lanes_keep_their_names(tmp_path: Path) -> None:
    write_shard(tmp_path / "a" / "b" / "part_7.npz", np.arange(3))
    assert ready_shards(ids(tmp_path)) == [
        ReadyShard("a/b/part_7.npz", tmp_path / "a" / "b" / "part_7.npz")
    ]


def test_shards_without_lanes_get_the_inputs(tmp_path: Path) -> None:
    write_shard(tmp_path / "part_7.npz", np.arange(3))
    assert [s.name for s in ready_shards(ids(tmp_path))] == ["lane/mine/part_7.npz"]


def test_a_folder_without_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="part_"):
        ready_shards(ids(tmp_path))


def test_ids_are_counted_by_kind(tmp_path: Path) -> None:
    path = tmp_path / "part_0.npz"
    write_shard(path, np.array([1, 2, LAYOUT.bands["audio"][0], LAYOUT.marks["sep"]]))
    assert count_ready(ReadyShard("n", path), LAYOUT) == {
        "text": 3,
        "picture": 0,
        "sound": 1,
        "clip": 0,
    }


def test_an_id_beyond_the_layout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "part_0.npz"
    write_shard(path, np.array([1, LAYOUT.num_ids]))
    with pytest.raises(DataError, match=f"ids below {LAYOUT.num_ids}"):
        count_ready(ReadyShard("n", path), LAYOUT)


def test_shards_are_linked_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "part_0.npz"
    write_shard(path, np.arange(3))
    link_shards([ReadyShard("a/b/part_0.npz", path)], tmp_path / "ids")
    assert (tmp_path / "ids" / "a" / "b" / "part_0.npz").stat().st_ino == path.stat().st_ino


def test_two_shards_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "part_0.npz"
    write_shard(path, np.arange(3))
    with pytest.raises(DataError, match="name of its own"):
        link_shards([ReadyShard("a/b/part_0.npz", path)] * 2, tmp_path / "ids")


def test_all_ready_ids_must_share_one_layout(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    LAYOUT.save(tmp_path / "a")
    config = SourcesConfig(inputs=(ids(tmp_path / "a", "a"), ids(tmp_path / "b", "b")))
    with pytest.raises(DataError, match=r"same layout\.json"):
        ready_layout(config)
    LAYOUT.save(tmp_path / "b")
    found = ready_layout(config)
    assert found is not None
    assert found.layout == LAYOUT


def test_text_beside_ids_needs_their_tokenizer(tmp_path: Path) -> None:
    text = SourceInput(name="text", kind="demo_text")
    with pytest.raises(DataError, match="names a tokenizer"):
        ready_layout(SourcesConfig(inputs=(ids(tmp_path), text)))
    assert ready_layout(SourcesConfig(inputs=(text,))) is None
