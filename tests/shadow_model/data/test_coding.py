"""Documents become shards of ids."""

from pathlib import Path

import numpy as np
import pytest

from shadow_model.data.coding import Coder, write_text_shards
from shadow_model.data.id_layout import IdLayout
from shadow_model.data.inputs import SourceInput
from shadow_model.data.items import ItemRef
from shadow_model.data.media import MediaConfig
from shadow_model.data.picture import PictureCodec, PictureConfig
from shadow_model.data.plan import ShardPlan
from shadow_model.data.shards import read_shard
from shadow_model.data.text import Pieces
from shadow_model.errors import DataError

MEDIA = MediaConfig(picture=PictureConfig(side=16, first=2, second=2, components=0))
SOURCE = SourceInput(name="docs", kind="demo_text")
TEXTS = ["one two", "three\n", "four"]
TEXT = frozenset({"text"})


@pytest.fixture(scope="module")
def pieces() -> Pieces:
    return Pieces.train(TEXTS, 300)


@pytest.fixture(scope="module")
def pictures() -> list[np.ndarray]:
    return list(np.random.default_rng(0).random((20, 16, 16, 3), np.float32))


def coder(pieces: Pieces, pictures: list[np.ndarray], **changes: object) -> Coder:
    codec = PictureCodec.fit(pictures, MEDIA.picture, 0)
    layout = IdLayout.dense(pieces.size, None).replace(**changes)
    return Coder(pieces, {"picture": codec}, MEDIA, layout, "layout.json")


def test_texts_are_documents_that_end_with_sep(
    pieces: Pieces, pictures: list[np.ndarray], tmp_path: Path
) -> None:
    with_pictures = coder(pieces, pictures)
    plans = [ShardPlan("l/s/part_0.npz", TEXT, 2), ShardPlan("l/s/part_1.npz", TEXT, 1)]
    figures = list(write_text_shards(iter(TEXTS), SOURCE, plans, with_pictures, tmp_path))
    assert [(f.documents, f.text_bytes) for f in figures] == [(2, 13), (1, 4)]
    sep = with_pictures.layout.marks["sep"]
    stream = read_shard(tmp_path / "l/s/part_0.npz").tolist()
    ends = [i for i, one in enumerate(stream) if one == sep]
    assert len(ends) == 2
    assert ends[-1] == len(stream) - 1
    assert pieces.decode(stream[: ends[0]]) == TEXTS[0]
    assert pieces.decode(stream[ends[0] + 1 : ends[1]]) == TEXTS[1]


@pytest.mark.parametrize("planned", [2, 4])
def test_documents_that_came_or_went_since_the_plan_are_noticed(
    pieces: Pieces, pictures: list[np.ndarray], tmp_path: Path, planned: int
) -> None:
    plans = [ShardPlan("l/s/part_0.npz", TEXT, planned)]
    with pytest.raises(DataError, match="not change"):
        list(write_text_shards(iter(TEXTS), SOURCE, plans, coder(pieces, pictures), tmp_path))


def test_both_orders_of_all_items_decode(pieces: Pieces, pictures: list[np.ndarray]) -> None:
    with_pictures = coder(pieces, pictures)
    layout = with_pictures.layout
    items = [ItemRef("picture", f"number {i}", "", 16, None, pictures[i]) for i in range(2)]
    ids, documents = with_pictures.code_items(items)
    assert documents == 4
    split = np.split(ids, np.flatnonzero(ids == layout.marks["sep"]) + 1)[:-1]
    first = layout.bands["image"][0]
    for number, (one, other) in enumerate(zip(split[:2], split[2:], strict=True)):
        codes = with_pictures.codecs["picture"].encode(pictures[number]) + first
        assert one[0] == layout.marks["image"]
        assert one[1:17].tolist() == other[-18:-2].tolist() == codes.tolist()
        assert one[17] == layout.controls["[/image]"]
        assert pieces.decode(one[18:-1]) == pieces.decode(other[:-19]) == f"number {number}"
        assert other[-19] == layout.controls["[gen_image]"]
        assert other[-2] == layout.controls["[end_gen]"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"marks": {}}, "the mark sep"),
        ({"vocab": 3}, "vocab >="),
        ({"bands": {"image": (300, 3)}}, "4 codes for a picture"),
    ],
)
def test_a_layout_too_small_is_refused(
    pieces: Pieces, pictures: list[np.ndarray], changes: dict[str, object], said: str
) -> None:
    with pytest.raises(DataError, match=said):
        coder(pieces, pictures, **changes)
