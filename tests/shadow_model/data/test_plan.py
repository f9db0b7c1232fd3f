"""Which document lies in which shard."""

from collections import Counter

import pytest

from shadow_model.data.inputs import SourceInput
from shadow_model.data.items import ItemRef
from shadow_model.data.plan import ShardPlan, check_split, deal_items, place_texts, plan_items
from shadow_model.errors import DataError

SOURCE = SourceInput(lane="lane", name="source", kind="demo_text")
MEDIA = SourceInput(lane="lane", name="source", kind="demo_media")


def item(kind: str, group: str, tokens: int = 100) -> ItemRef:
    return ItemRef(kind, f"a {kind}", group, tokens, None, None)  # type: ignore[arg-type]


def test_texts_fill_shards_in_their_order_and_are_never_cut() -> None:
    texts = ["x" * 400, "y" * 400, "z" * 2000, "w"]
    placed = list(place_texts(texts, SOURCE, 200))  # 200 tokens are about 680 bytes
    assert [text for _, text in placed] == texts
    assert [name[-9:] for name, _ in placed] == ["00000.npz", "00000.npz", "00001.npz", "00002.npz"]
    assert placed[0][0] == "lane/source/part_00000.npz"


def test_groups_stay_whole_and_every_shard_has_its_share_of_each_kind() -> None:
    items = [item("picture", f"p{i // 3}") for i in range(60)]
    items += [item("sound", f"s{i}", 20) for i in range(20)]
    shards = deal_items(items, [False, True, False, False])
    homes: dict[str, set[int]] = {}
    for number, shard in enumerate(shards):
        assert Counter(one.kind for one in shard) == {"picture": 15, "sound": 5}
        for one in shard:
            homes.setdefault(one.group, set()).add(number)
    assert all(len(home) == 1 for home in homes.values())
    assert sorted(map(id, items)) == sorted(id(one) for shard in shards for one in shard)


def test_a_group_of_two_kinds_stays_whole() -> None:
    items = [item(kind, f"photo{i}") for kind in ("picture", "clip") for i in range(8)]
    for shard in deal_items(items, [False, True]):
        assert Counter(one.kind for one in shard) == {"picture": 4, "clip": 4}
        assert len({one.group for one in shard}) == 4


def test_a_kind_of_two_groups_is_on_both_sides() -> None:
    items = [item("picture", f"p{i}") for i in range(40)] + [
        item("clip", f"c{i}") for i in range(2)
    ]
    held_out = [False] * 6 + [True] * 2
    shards = deal_items(items, held_out)
    sides = [held_out[n] for n, shard in enumerate(shards) if any(i.kind == "clip" for i in shard)]
    assert sorted(sides) == [False, True]


def test_the_users_items_are_cut_in_their_order() -> None:
    source = SourceInput(lane="lane", name="source", kind="pictures", path=".")
    items = [item("picture", str(i)) for i in range(10)]
    shards = plan_items(items, source, 600, 100)
    assert [[one.group for one in shard.items] for shard in shards] == [
        ["0", "1", "2"],
        ["3", "4", "5"],
        ["6", "7", "8"],
        ["9"],
    ]
    assert shards[1].name == "lane/source/part_00001.npz"
    assert shards[1].kinds == {"text", "picture"}


def test_shards_left_empty_keep_their_number_unused() -> None:
    shards = plan_items([item("picture", "one group", 1000)] * 3, MEDIA, 2000, 100)
    assert len(shards) == 1


def test_a_split_with_every_kind_on_both_sides_passes() -> None:
    shards = [ShardPlan(f"l/s/part_{i}.npz", frozenset({"text", "clip"})) for i in range(20)]
    assert {shard.held_out(3) for shard in shards} == {True, False}
    check_split(shards, 3)


def test_a_split_that_lacks_a_kind_is_refused_with_advice() -> None:
    shards = [ShardPlan(f"l/s/part_{i}.npz", frozenset({"text"})) for i in range(20)]
    with pytest.raises(DataError, match="no text held out") as error:
        check_split(shards, 1 << 20)
    advised = int(error.value.fix.split("val_every = ")[1].split(",")[0])
    check_split(shards, advised)


def test_a_split_that_nothing_but_smaller_shards_can_mend_says_so() -> None:
    with pytest.raises(DataError, match="smaller"):
        check_split([ShardPlan("l/s/part_0.npz", frozenset({"text"}))], 100)
