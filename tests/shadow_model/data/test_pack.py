import json
import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shadow_model.data import pack
from shadow_model.data.bins import open_bins
from shadow_model.data.pack import PackConfig, pack_bins
from shadow_model.data.shards import write_shard
from shadow_model.errors import ConfigError, DataError
from shadow_model.table.layout import Layout
from shadow_model.table.store import table_digest
from shadow_model.table.synthetic import synthetic_table

LAYOUT = Layout(num_lang=50)
SEP = LAYOUT.marks["sep"]
FIRST = LAYOUT.offsets
NAMES = [
    f"{source}/part_{i:05d}.npz" for source in ("knowledge/book", "seeing/photos") for i in range(4)
]
ORDER = [2, 4, 3, 6, 5, 0, 1, 7]
"""What numpy's default_rng(0).shuffle makes of list(range(8))."""


@pytest.fixture(scope="module")
def table_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "table.npz"
    synthetic_table(50, 0).save(path)
    return path


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Shard i of NAMES holds 10 + i ids: its number, then one of every kind, then text and sep."""
    for i, name in enumerate(NAMES):
        write(tmp_path / "data", name, content(i))
    return tmp_path / "data"


def content(i: int) -> list[int]:
    return [i, FIRST["image"], FIRST["audio"], FIRST["video"], *[20] * (5 + i), SEP]


def write(folder: Path, name: str, ids: Sequence[int]) -> None:
    write_shard(folder / "ids_final" / name, np.array(ids))


def read(folder: Path, name: str) -> list[int]:
    return np.fromfile(folder / name, "<u4").tolist()


def joined(places: Sequence[int]) -> list[int]:
    return [row for i in places for row in content(i)]


def held_out_of(names: Sequence[str], val_every: int) -> set[int]:
    return {i for i, name in enumerate(names) if zlib.crc32(name.encode()) % val_every == 0}


def assert_no_output(folder: Path) -> None:
    assert not folder.exists() or list(folder.iterdir()) == []


def test_order_and_split_are_those_of_the_format(shards: Path, table_path: Path) -> None:
    assert held_out_of(NAMES, 5) == {0, 6}
    order = list(range(len(NAMES)))
    np.random.default_rng(0).shuffle(order)
    assert order == ORDER
    out = shards.parent / "out"
    pack_bins([shards], table_path, out, PackConfig(val_every=5))
    assert read(out, "train.bin") == joined([i for i in ORDER if i not in {0, 6}])
    assert read(out, "val.bin") == joined([6, 0])


def test_crc32_worked_out_by_hand_decides(shards: Path, table_path: Path) -> None:
    checksums = "48231cb9 75433509 32e34fd9 0f836669 6b4f1c27 562f3597 118f4f47 2cef66f7"
    by_hand = {i for i, text in enumerate(checksums.split()) if int(text, 16) % 3 == 0}
    out = shards.parent / "out"
    pack_bins([shards], table_path, out, PackConfig(val_every=3))
    assert read(out, "val.bin") == joined([i for i in ORDER if i in by_hand])
    assert 0 < len(by_hand) < 8


def test_moving_the_data_changes_no_byte(shards: Path, table_path: Path) -> None:
    first, second = shards.parent / "out", shards.parent / "far" / "away" / "out"
    pack_bins([shards], table_path, first, PackConfig(val_every=5))
    moved = shards.parent / "somewhere" / "else"
    moved.parent.mkdir()
    shutil.move(shards, moved)
    pack_bins([moved], table_path, second, PackConfig(val_every=5))
    for name in ("train.bin", "val.bin", "packed.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_shards_divided_over_folders_pack_the_same(shards: Path, table_path: Path) -> None:
    parts = [shards.parent / "a", shards.parent / "b", shards.parent / "empty"]
    for i, name in enumerate(NAMES):
        write(parts[i % 2], name, content(i))
    parts[2].mkdir()
    one, many = shards.parent / "one", shards.parent / "many"
    pack_bins([shards], table_path, one, PackConfig(val_every=5))
    pack_bins(parts[::-1], table_path, many, PackConfig(val_every=5))
    assert (one / "train.bin").read_bytes() == (many / "train.bin").read_bytes()


def test_packed_json_says_what_the_bins_hold(shards: Path, table_path: Path) -> None:
    out = shards.parent / "out"
    told = pack_bins([shards], table_path, out, PackConfig(val_every=5))
    packed = json.loads((out / "packed.json").read_bytes())
    assert packed == json.loads(json.dumps(told))
    train, val = read(out, "train.bin"), read(out, "val.bin")
    assert packed["version"] == 1
    assert packed["lanes"] == ["knowledge", "seeing"]
    assert (packed["train"], packed["val"]) == (len(train), len(val))
    assert packed["table"] == table_digest(table_path)
    assert packed["val_every"] == 5
    assert packed["kinds"]["val"] == {
        "text": len(val) - 6,
        "picture": 2,
        "sound": 2,
        "clip": 2,
    }
    assert packed["lane_tokens"]["val"] == {"knowledge": len(content(0)), "seeing": len(content(6))}
    assert packed["shards"] == {"train": 6, "val": 2}
    opened = open_bins(out, table_path, ctx=8)
    assert opened.train.ids.tolist() == train


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_packing_then_reading_gives_the_shards_one_after_the_other(
    table_path: Path, data: st.DataObject
) -> None:
    numbers = data.draw(st.sets(st.integers(0, 99_999), min_size=4, max_size=12))
    names = sorted(f"lane/made/part_{i:05d}.npz" for i in numbers)
    chunk = data.draw(st.integers(1, 9))
    seed = data.draw(st.integers(0, 3))
    texts = [data.draw(st.lists(st.integers(0, 49), min_size=1, max_size=20)) for _ in names]
    held_out = held_out_of(names, 3)
    order = list(range(len(names)))
    np.random.default_rng(seed).shuffle(order)
    config = PackConfig(val_every=3, shuffle_seed=seed)
    with TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pack, "_CHUNK_IDS", chunk)
        for name, text in zip(names, texts, strict=True):
            write(Path(root), name, text)
        out = Path(root) / "out"
        if not 0 < len(held_out) < len(names):
            with pytest.raises(DataError, match="val_every"):
                pack_bins([Path(root)], table_path, out, config)
            return
        pack_bins([Path(root)], table_path, out, config)
        for name, wanted in (("train.bin", False), ("val.bin", True)):
            expected = [t for i in order if (i in held_out) == wanted for t in texts[i]]
            assert read(out, name) == expected


def test_weights_change_the_training_tokens_and_not_the_held_out(
    shards: Path, table_path: Path
) -> None:
    plain, mixed = shards.parent / "plain", shards.parent / "mixed"
    pack_bins([shards], table_path, plain, PackConfig(val_every=5))
    weights = {"knowledge": 1.0, "seeing": 4.0}
    told = pack_bins([shards], table_path, mixed, PackConfig(val_every=5, lane_weights=weights))
    assert (plain / "val.bin").read_bytes() == (mixed / "val.bin").read_bytes()
    tokens = told["lane_tokens"]["train"]
    # 15.4 of 77 tokens: one document of 11 to 13 fits; 61.6: whole shards of 14, 15, 17
    assert tokens["knowledge"] in (11, 12, 13)
    assert abs(tokens["seeing"] - 61.6) <= 17 / 2
    documents = np.flatnonzero(np.array(read(mixed, "train.bin")) == SEP)
    assert documents[-1] == told["train"] - 1  # nothing is cut inside a document


def test_no_shards_is_an_error_that_names_the_folders(tmp_path: Path, table_path: Path) -> None:
    with pytest.raises(DataError, match="ids_final"):
        pack_bins([tmp_path / "none"], table_path, tmp_path / "out", PackConfig())
    with pytest.raises(DataError, match="part_"):
        pack_bins([], table_path, tmp_path / "out", PackConfig())


def test_an_empty_bin_is_an_error_that_says_what_would_do(shards: Path, table_path: Path) -> None:
    out = shards.parent / "out"
    with pytest.raises(DataError, match="no shard held out") as caught:
        pack_bins([shards], table_path, out, PackConfig(val_every=4))
    works = int(caught.value.fix.split("pack.val_every to ")[1].split(",")[0])
    assert 0 < len(held_out_of(NAMES, works)) < len(NAMES)
    assert_no_output(out)
    pack_bins([shards], table_path, out, PackConfig(val_every=works))


def test_a_single_shard_cannot_be_divided(tmp_path: Path, table_path: Path) -> None:
    write(tmp_path, "a/b/part_0.npz", content(0))
    with pytest.raises(DataError, match="more and smaller shards"):
        pack_bins([tmp_path], table_path, tmp_path / "out", PackConfig(val_every=7))


def test_a_kind_absent_from_the_held_out_bin_is_an_error(shards: Path, table_path: Path) -> None:
    for i in held_out_of(NAMES, 5):
        write(shards, NAMES[i], [i, FIRST["audio"], 3, SEP])
    out = shards.parent / "out"
    with pytest.raises(DataError, match="no held-out clip, picture") as caught:
        pack_bins([shards], table_path, out, PackConfig(val_every=5))
    assert_no_output(out)
    works = int(caught.value.fix.split("pack.val_every to ")[1].split(",")[0])
    pack_bins([shards], table_path, out, PackConfig(val_every=works))


def test_the_same_shard_in_two_folders_is_an_error(shards: Path, table_path: Path) -> None:
    write(shards.parent / "other", NAMES[0], content(0))
    with pytest.raises(DataError, match="each shard once"):
        pack_bins([shards, shards.parent / "other"], table_path, shards / "out", PackConfig())


def test_an_id_that_is_no_row_is_named_with_shard_and_position(
    shards: Path, table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "_CHUNK_IDS", 4)
    ids = content(1)
    ids[9] = LAYOUT.num_rows
    write(shards, NAMES[1], ids)
    with pytest.raises(DataError, match=f"{LAYOUT.num_rows} at position 9") as caught:
        pack_bins([shards], table_path, shards.parent / "out", PackConfig(val_every=5))
    assert caught.value.where.endswith(NAMES[1])
    assert_no_output(shards.parent / "out")


def test_a_full_disk_is_told_before_anything_is_written(
    shards: Path, table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 100})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(DataError, match="MiB free"):
        pack_bins([shards], table_path, shards.parent / "out", PackConfig(val_every=5))
    assert_no_output(shards.parent / "out")


def test_progress_ends_at_the_total(shards: Path, table_path: Path) -> None:
    calls: list[tuple[float, float]] = []
    config, out = PackConfig(val_every=5), shards.parent / "out"
    told = pack_bins(
        [shards], table_path, out, config, lambda done, total, _: calls.append((done, total))
    )
    assert calls == sorted(calls)
    assert calls[-1] == (told["train"] + told["val"],) * 2


@pytest.mark.parametrize(
    "fields", [{"val_every": 1}, {"lane_weights": {"a": -1}}, {"shuffle_seed": -1}]
)
def test_configs_out_of_bounds_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(fields))):
        PackConfig.parse(fields, "config")
