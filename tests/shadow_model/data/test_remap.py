from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shadow_model.data import remap
from shadow_model.data.id_layout import IdLayout
from shadow_model.data.remap import RemapConfig, batch_shards, remap_shards
from shadow_model.data.shards import list_shards, read_shard, write_shard
from shadow_model.data.text import Pieces
from shadow_model.errors import ConfigError, DataError
from shadow_model.table.store import Table
from shadow_model.table.synthetic import synthetic_table

TEXT = "".join(chr(97 + i % 26) * 2 + "ing the quick fox " for i in range(600))


@pytest.fixture(scope="module")
def pieces() -> Pieces:
    return Pieces.train([TEXT], 320)


@pytest.fixture(scope="module")
def table_folder(tmp_path_factory: pytest.TempPathFactory, pieces: Pieces) -> Path:
    """A table of the byte pieces and every second other one."""
    folder = tmp_path_factory.mktemp("table")
    others = np.setdiff1d(np.arange(pieces.size), pieces.byte_ids)
    kept = np.sort(np.concatenate([pieces.byte_ids, others[::2]])).astype(np.int64)
    replace(synthetic_table(len(kept), 0), lang_old_ids=kept).save(folder / "table.npz")
    return folder


@pytest.fixture
def ids_folder(tmp_path: Path, pieces: Pieces) -> Path:
    """Two lanes: text, and text with pictures, in .npz and Parquet."""
    folder = tmp_path / "ids"
    layout = IdLayout.dense(pieces.size, "pieces.model")
    text = pieces.encode(TEXT[:3000])
    picture = layout.bands["image"][0] + np.arange(16)
    span = [layout.marks["image"], *picture, layout.controls["[/image]"], layout.marks["sep"]]
    write_shard(folder / "knowledge/book/part_0.npz", text)
    write_shard(folder / "seeing/photos/part_0.npz", np.concatenate([text[:50], span]))
    documents = pa.table({"ids": pa.array([text[:9], span], pa.list_(pa.uint32()))})
    pq.write_table(documents, folder / "seeing/photos/part_1.parquet")
    layout.save(folder)
    pieces.save(folder / "pieces.model")
    return folder


def run(ids: Path, table: Path, config: RemapConfig | None = None) -> dict[str, Any]:
    out = ids.parent / "out"
    return remap_shards(ids, list_shards(ids), table, out, config or RemapConfig())


def naive(old_ids: np.ndarray, table_folder: Path, pieces: Pieces) -> list[int]:
    """Rows by a plain loop, from what the files say alone."""
    with np.load(table_folder / "table.npz") as file:
        row_of = {int(old): row for row, old in enumerate(file["lang_old_ids"])}
        shift = int(file["n_lang"]) - pieces.size
    rows = list[int]()
    for old in old_ids.tolist():
        if old >= pieces.size:  # both layouts have the same order behind the text
            rows.append(old + shift)
        elif old in row_of:
            rows.append(row_of[old])
        else:
            rows += [row_of[byte] for byte in pieces.byte_expansion(old)]
    return rows


@pytest.mark.parametrize("chunk", [7, 1 << 19])
def test_shards_equal_a_plain_loop_whatever_the_chunk(
    ids_folder: Path,
    table_folder: Path,
    pieces: Pieces,
    chunk: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remap, "_CHUNK_IDS", chunk)
    run(ids_folder, table_folder)
    final = ids_folder.parent / "out" / "ids_final"
    assert list_shards(final) == [
        "knowledge/book/part_0.npz",
        "seeing/photos/part_0.npz",
        "seeing/photos/part_1.npz",
    ]
    for old, new in zip(list_shards(ids_folder), list_shards(final), strict=True):
        expected = naive(read_shard(ids_folder / old), table_folder, pieces)
        assert read_shard(final / new).tolist() == expected


def test_expanded_text_still_reads_the_same(
    ids_folder: Path, table_folder: Path, pieces: Pieces
) -> None:
    run(ids_folder, table_folder)
    rows = read_shard(ids_folder.parent / "out/ids_final/knowledge/book/part_0.npz")
    with np.load(table_folder / "table.npz") as file:
        assert pieces.decode(file["lang_old_ids"][rows].tolist()) == TEXT[:3000]


def test_counts_say_what_became_of_every_token(ids_folder: Path, table_folder: Path) -> None:
    counts = run(ids_folder, table_folder)
    sizes_in = [len(read_shard(ids_folder / n)) for n in list_shards(ids_folder)]
    final = ids_folder.parent / "out" / "ids_final"
    sizes_out = [len(read_shard(final / n)) for n in list_shards(final)]
    assert (counts["shards"], counts["empty"]) == (3, 0)
    assert (counts["tokens_in"], counts["tokens_out"]) == (sum(sizes_in), sum(sizes_out))
    assert counts["dropped"] == 0
    assert 0 < counts["expanded"] < counts["tokens_in"]  # type: ignore[operator]
    assert counts["kinds"] == {
        "text": sum(sizes_out) - 32,
        "picture": 32,
        "sound": 0,
        "clip": 0,
    }
    lanes = counts["lanes"]
    assert isinstance(lanes, dict)
    assert lanes["knowledge"]["tokens_out"] == sizes_out[0]
    assert lanes["seeing"]["tokens_in"] == sum(sizes_in[1:])


def test_dropping_loses_exactly_the_ids_without_a_row(ids_folder: Path, table_folder: Path) -> None:
    expanded = run(ids_folder, table_folder)["expanded"]
    counts = run(ids_folder, table_folder, RemapConfig(missing="drop"))
    assert counts["dropped"] == expanded
    assert counts["tokens_out"] == counts["tokens_in"] - expanded  # type: ignore[operator]


def test_two_runs_write_the_same_bytes(ids_folder: Path, table_folder: Path) -> None:
    path = ids_folder.parent / "out/ids_final/seeing/photos/part_0.npz"
    run(ids_folder, table_folder)
    first = path.read_bytes()
    run(ids_folder, table_folder)
    assert path.read_bytes() == first


def test_a_shard_of_which_nothing_is_left_is_not_written(
    ids_folder: Path, table_folder: Path, pieces: Pieces
) -> None:
    with np.load(table_folder / "table.npz") as file:
        lost = np.setdiff1d(np.arange(pieces.size), file["lang_old_ids"])
    write_shard(ids_folder / "knowledge/book/part_1.npz", lost)
    counts = run(ids_folder, table_folder, RemapConfig(missing="drop"))
    assert counts["empty"] == 1
    assert not (ids_folder.parent / "out/ids_final/knowledge/book/part_1.npz").exists()


def assert_no_output(ids_folder: Path) -> None:
    left = [p for p in (ids_folder.parent / "out").rglob("*") if p.is_file()]
    assert left == []


def test_an_id_above_the_vocabulary_is_named_with_shard_and_position(
    ids_folder: Path, table_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remap, "_CHUNK_IDS", 8)
    highest = IdLayout.load(ids_folder).num_ids  # type: ignore[union-attr]
    ids = np.zeros(40, np.int64)
    ids[29] = highest
    write_shard(ids_folder / "a/b/part_0.npz", ids)
    with pytest.raises(DataError, match=f"id {highest} at position 29") as caught:
        run(ids_folder, table_folder)
    assert caught.value.where.endswith("a/b/part_0.npz")
    assert_no_output(ids_folder)


def test_refusing_names_shard_position_and_what_to_do(
    ids_folder: Path, table_folder: Path, pieces: Pieces
) -> None:
    with np.load(table_folder / "table.npz") as file:
        lost = np.setdiff1d(np.arange(pieces.size), file["lang_old_ids"])
    write_shard(ids_folder / "a/b/part_0.npz", np.array([*file_head(ids_folder), lost[0]]))
    with pytest.raises(DataError, match=f"id {lost[0]} without a row at position 4") as caught:
        run(ids_folder, table_folder, RemapConfig(missing="error"))
    assert "remap.missing" in caught.value.fix
    assert_no_output(ids_folder)


def file_head(ids_folder: Path) -> list[int]:
    """Four old ids that have rows: the bands' own."""
    layout = IdLayout.load(ids_folder)
    assert layout is not None
    return list(range(layout.vocab, layout.vocab + 4))


def test_without_a_layout_expanding_says_what_it_needs(
    ids_folder: Path, table_folder: Path
) -> None:
    (ids_folder / "layout.json").unlink()
    for name in list_shards(ids_folder)[1:]:
        (ids_folder / name).unlink()
    with pytest.raises(DataError, match=r"layout\.json"):
        run(ids_folder, table_folder)


def test_a_broken_shard_stops_the_stage_before_it_writes(
    ids_folder: Path, table_folder: Path
) -> None:
    whole = (ids_folder / "knowledge/book/part_0.npz").read_bytes()
    (ids_folder / "seeing/photos/part_2.npz").write_bytes(whole[:-30])
    with pytest.raises(DataError, match=r"part_2\.npz"):
        run(ids_folder, table_folder)
    assert_no_output(ids_folder)


def test_a_full_disk_is_told_before_anything_is_written(
    ids_folder: Path, table_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 100})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(DataError, match="MiB free"):
        run(ids_folder, table_folder)
    assert_no_output(ids_folder)


def test_progress_ends_at_the_total(ids_folder: Path, table_folder: Path) -> None:
    calls: list[tuple[float, float]] = []
    names = list_shards(ids_folder)
    remap_shards(
        ids_folder,
        names,
        table_folder,
        ids_folder.parent / "out",
        RemapConfig(),
        lambda done, total, _: calls.append((done, total)),
    )
    assert calls == sorted(calls)
    assert calls[-1][0] == calls[-1][1] > 0


def test_an_unknown_way_with_missing_ids_is_refused() -> None:
    with pytest.raises(ConfigError, match="missing"):
        RemapConfig.parse({"missing": "guess"}, "config")


@given(st.dictionaries(st.text("abc/", min_size=1), st.integers(0, 100), max_size=30), st.data())
def test_batches_are_even_runs_of_the_sorted_shards(
    sizes: dict[str, int], data: st.DataObject
) -> None:
    max_tasks = data.draw(st.integers(1, 8))
    names = data.draw(st.permutations(list(sizes)))
    batches = batch_shards(names, sizes, max_tasks)
    assert [name for batch in batches for name in batch] == sorted(sizes)
    assert all(batches)
    assert len(batches) <= max_tasks
    weights = [sum(max(sizes[name], 1) for name in batch) for batch in batches]
    if weights:
        share = sum(weights) / min(max_tasks, len(sizes))
        largest = max(max(size, 1) for size in sizes.values())
        assert max(weights) <= share + largest
    assert batches == batch_shards(names, [sizes[name] for name in names], max_tasks)


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_nothing_is_lost_and_the_counts_add_up(
    table_folder: Path, pieces: Pieces, data: st.DataObject
) -> None:
    layout, table = (
        IdLayout.dense(pieces.size, "pieces.model"),
        Table.load(table_folder / "table.npz"),
    )
    spelled = st.integers(1, layout.num_ids - 1)  # 0 is <unk>, which spells nothing
    shards = data.draw(st.lists(st.lists(spelled, min_size=1, max_size=40), min_size=1, max_size=4))
    with TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(remap, "_CHUNK_IDS", data.draw(st.integers(1, 9)))
        ids = Path(root) / "ids"
        for number, shard in enumerate(shards):
            write_shard(ids / f"lane{number % 2}/a/part_{number}.npz", np.array(shard))
        layout.save(ids)
        pieces.save(ids / "pieces.model")
        counts = run(ids, table_folder)
        names = [f"lane{number % 2}/a/part_{number}.npz" for number in range(len(shards))]
        final = [np.array(read_shard(Path(root) / "out" / "ids_final" / name)) for name in names]
    for shard, rows in zip(shards, final, strict=True):
        assert rows.tolist() == naive(np.array(shard), table_folder, pieces)
        text = table.lang_old_ids[rows[rows < table.layout.num_lang]]
        assert pieces.decode(text.tolist()) == pieces.decode(i for i in shard if i < layout.vocab)
    tokens = (sum(map(len, shards)), sum(map(len, final)))
    assert (counts["tokens_in"], counts["tokens_out"], counts["dropped"]) == (*tokens, 0)
    assert sum(counts["kinds"].values()) == tokens[1]
    for name in ("tokens_in", "tokens_out", "expanded"):
        assert sum(lane[name] for lane in counts["lanes"].values()) == counts[name]
