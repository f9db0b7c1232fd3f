from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from shadow_model.data import mixture
from shadow_model.data.mixture import Entry, mix
from shadow_model.data.shards import write_shard
from shadow_model.errors import ConfigError

SEP = 9


def make_shards(root: Path, sizes: dict[str, list[int]], document: int = 10) -> list[Entry]:
    """Write shards of documents of `document` ids; sizes are in documents."""
    entries = []
    for source, counts in sizes.items():
        for index, count in enumerate(counts):
            name = f"{source}/part_{index}.npz"
            ids = np.tile(np.array([1] * (document - 1) + [SEP]), count)
            write_shard(root / name, ids)
            entries.append(Entry(name, root / name, len(ids)))
    return sorted(entries)


def lane_tokens(entries: list[Entry]) -> Counter[str]:
    tokens: Counter[str] = Counter()
    for entry in entries:
        tokens[entry.name.split("/")[0]] += entry.tokens
    return tokens


def test_equal_weights_cut_the_large_lane_and_repeat_the_small(tmp_path: Path) -> None:
    entries = make_shards(tmp_path, {"big/a": [40] * 20, "small/a": [10] * 20})
    mixed = mix(entries, {"big": 1, "small": 1}, SEP, seed=0)
    tokens = lane_tokens(mixed)
    # exact up to a document (cut) and half a shard (repeats), of 5000 each
    assert abs(tokens["big"] - 5000) <= 10
    assert abs(tokens["small"] - 5000) <= 50
    assert mixed == sorted(mixed)
    times = Counter(e.name for e in mixed if e.name.startswith("small"))
    assert set(times.values()) == {2, 3}
    assert len(times) == 20


def test_cuts_are_at_ends_of_documents_and_alike_in_all_shards(tmp_path: Path) -> None:
    entries = make_shards(tmp_path, {"big/a": [40] * 10, "small/a": [10]})
    mixed = mix(entries, {"big": 1, "small": 1}, SEP, seed=0)
    cut = [entry for entry in mixed if entry.name.startswith("big")]
    assert len(cut) == 10
    assert all(entry.tokens % 10 == 0 for entry in cut)
    assert max(e.tokens for e in cut) - min(e.tokens for e in cut) <= 10


def test_a_document_longer_than_the_share_waits_for_enough(tmp_path: Path) -> None:
    entries = make_shards(tmp_path, {"big/a": [1] * 8, "small/a": [8]}, document=100)
    mixed = mix(entries, {"big": 1, "small": 3}, SEP, seed=0)
    assert [e.tokens for e in mixed if e.name.startswith("big")] == [100] * 4


def test_a_cut_is_found_over_several_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixture, "_CHUNK_IDS", 7)
    entries = make_shards(tmp_path, {"big/a": [40], "small/a": [10]})
    mixed = mix(entries, {"big": 1, "small": 1}, SEP, seed=0)
    assert [e.tokens for e in mixed if e.name.startswith("big")] == [250]


def test_weight_0_leaves_a_lane_out(tmp_path: Path) -> None:
    entries = make_shards(tmp_path, {"a/a": [3, 3], "b/b": [3, 3]})
    assert set(lane_tokens(mix(entries, {"a": 1, "b": 0}, SEP, seed=0))) == {"a"}


def test_the_weight_of_a_source_goes_before_that_of_its_lane(tmp_path: Path) -> None:
    entries = make_shards(tmp_path, {"a/x": [10] * 4, "a/y": [10] * 4})
    mixed = mix(entries, {"a": 3, "a/y": 1}, SEP, seed=0)
    assert sum(e.tokens for e in mixed if "/x/" in e.name) == 600
    assert sum(e.tokens for e in mixed if "/y/" in e.name) == 200


def test_another_seed_repeats_other_shards(tmp_path: Path) -> None:
    entries = make_shards(tmp_path, {"a/a": [10] * 20, "b/b": [10] * 20})
    mixed = [mix(entries, {"a": 3, "b": 2}, SEP, seed) for seed in (0, 0, 1)]
    assert mixed[0] == mixed[1]
    assert mixed[0] != mixed[2]


@pytest.mark.parametrize(
    "weights",
    [{"a": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 0.0, "b": 0.0}],
    ids=["lane without weight", "weight without lane", "all 0"],
)
def test_weights_that_do_not_fit_the_lanes_are_refused(
    tmp_path: Path, weights: dict[str, float]
) -> None:
    entries = make_shards(tmp_path, {"a/a": [1], "b/b": [1]})
    with pytest.raises(ConfigError, match="lane_weights"):
        mix(entries, weights, SEP, seed=0)
