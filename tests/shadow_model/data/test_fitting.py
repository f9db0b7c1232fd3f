"""Which tokenizer and codecs the sources stage takes."""

from pathlib import Path

import numpy as np
import pytest

from shadow_model.data.fitting import choose_codecs, choose_pieces, items_by_kind, save_layout
from shadow_model.data.id_layout import IdLayout
from shadow_model.data.inputs import SourceInput, SourcesConfig
from shadow_model.data.items import ItemRef
from shadow_model.data.media import MediaConfig
from shadow_model.data.picture import PictureConfig
from shadow_model.data.plan import ShardPlan
from shadow_model.data.ready_ids import ReadyLayout
from shadow_model.data.text import Pieces
from shadow_model.data.text_sample import TextSample
from shadow_model.errors import DataError

SMALL = PictureConfig(side=16, first=4, second=2, components=0)
CONFIG = SourcesConfig(
    inputs=(SourceInput(name="n", kind="demo_text"),),
    num_pieces=400,
    media=MediaConfig(picture=SMALL),
    val_every=3,
)


@pytest.fixture
def sample() -> TextSample:
    sample = TextSample(10_000)
    sample.add("the text that is learnt from, the very text")
    return sample


def pictures(seed: int) -> tuple[ItemRef, ...]:
    arrays = np.random.default_rng(seed).random((8, 16, 16, 3), np.float32)
    return tuple(ItemRef("picture", "", str(i), 16, None, a) for i, a in enumerate(arrays))


def shard(number: int, seed: int) -> ShardPlan:
    return ShardPlan(f"l/s/part_{number}.npz", frozenset({"picture"}), items=pictures(seed))


def test_pieces_are_learnt_unless_there_are_some(tmp_path: Path, sample: TextSample) -> None:
    learnt = choose_pieces(CONFIG, None, sample)
    assert learnt is not None
    other = Pieces.train(["other words"], 300)
    other.save(tmp_path / "other.model")
    named = choose_pieces(CONFIG.replace(pieces=tmp_path / "other.model"), None, sample)
    assert named is not None
    given = ReadyLayout(IdLayout.dense(other.size, "other.model"), tmp_path)
    of_ids = choose_pieces(CONFIG, given, sample)
    assert of_ids is not None
    assert named.size == of_ids.size == other.size != learnt.size


def test_ids_without_a_tokenizer_have_no_pieces(tmp_path: Path, sample: TextSample) -> None:
    for layout in (None, IdLayout.dense(100, None)):
        given = ReadyLayout(layout, tmp_path)
        assert choose_pieces(CONFIG, given, sample) is None
        assert save_layout(tmp_path, given, None) == layout == IdLayout.load(tmp_path)


def test_the_layout_names_the_tokenizer_beside_it(tmp_path: Path, sample: TextSample) -> None:
    pieces = choose_pieces(CONFIG, None, sample)
    layout = save_layout(tmp_path, None, pieces)
    assert layout is not None
    assert layout == IdLayout.load(tmp_path)
    assert layout.pieces == "pieces.model"


def test_codecs_are_fitted_on_training_shards_only() -> None:
    numbers = range(12)
    held = [n for n in numbers if shard(n, 0).held_out(CONFIG.val_every)]
    assert 0 < len(held) < len(numbers)
    one, other = (
        choose_codecs([shard(n, seed if n in held else n) for n in numbers], CONFIG)["picture"]
        for seed in (100, 200)
    )
    assert np.array_equal(one.codebook, other.codebook)


def test_saved_codecs_are_taken_even_where_nothing_needs_them(tmp_path: Path) -> None:
    fitted = choose_codecs([shard(n, n) for n in range(12)], CONFIG)["picture"]
    fitted.save(tmp_path)
    taken = choose_codecs([], CONFIG.replace(codecs=tmp_path))
    assert np.array_equal(taken["picture"].codebook, fitted.codebook)


def test_too_few_items_are_refused() -> None:
    blank = ItemRef("picture", "", "", 16, None, np.zeros((16, 16, 3), np.float32))
    training = next(s for s in (shard(n, n) for n in range(12)) if not s.held_out(3))
    with pytest.raises(DataError, match="picture"):
        choose_codecs([training._replace(items=(blank,))], CONFIG)


def test_items_are_sorted_by_kind() -> None:
    one, other = shard(0, 0), shard(1, 1)
    found = items_by_kind([one, other])
    assert set(found) == {"picture"}
    assert list(map(id, found["picture"])) == list(map(id, (*one.items, *other.items)))
    assert items_by_kind([]) == {}
