import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest

from shadow_model.data.id_layout import IdLayout
from shadow_model.data.shards import write_shard
from shadow_model.data.table_stage import build_table
from shadow_model.data.text import Pieces
from shadow_model.errors import DataError
from shadow_model.table.config import TableConfig
from shadow_model.table.store import Table

CONFIG = TableConfig(dimensions=8, itq_iterations=5, measured_pairs=1000, min_word_count=2)
VAL_EVERY = 3  # part 3 of 6 is held out


@pytest.fixture(scope="module")
def texts() -> list[str]:
    rng = np.random.default_rng(0)
    topics = ("river water fish boat", "engine wheel brake motor", "violin piano chord song")
    return [" ".join(rng.choice(topics[i % 3].split(), 40)) for i in range(120)]


@pytest.fixture(scope="module")
def sources(texts: list[str], tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    (folder / "ids").mkdir()
    pieces = Pieces.train(texts, 400)
    pieces.save(folder / "ids" / "pieces.model")
    layout = IdLayout.dense(pieces.size, "pieces.model")
    layout.save(folder / "ids")
    sep = layout.marks["sep"]
    for part in range(6):
        documents = pieces.encode_many(texts[part::6])
        ids = np.concatenate([np.append(d, sep) for d in documents])
        write_shard(folder / "ids" / f"knowledge/docs/part_{part:05}.npz", ids)
    return folder


def test_table_tokenizer_and_figures_are_written(sources: Path, tmp_path: Path) -> None:
    figures = build_table(sources, tmp_path, CONFIG, VAL_EVERY)
    table = Table.load(tmp_path / "table.npz")
    layout = IdLayout.load(sources / "ids")
    assert table.layout.num_lang == layout.vocab
    assert Pieces.load(tmp_path / "pieces.model").size == layout.vocab
    assert figures["vectors"]["words"] == 12
    assert figures["hamming"]["min"] >= 24


def test_equal_sources_give_an_equal_file_elsewhere(sources: Path, tmp_path: Path) -> None:
    shutil.copytree(sources, tmp_path / "moved")
    build_table(sources, tmp_path / "one", CONFIG, VAL_EVERY)
    build_table(tmp_path / "moved", tmp_path / "two", CONFIG, VAL_EVERY)
    one, two = (tmp_path / n / "table.npz" for n in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_held_out_shards_change_nothing(sources: Path, tmp_path: Path) -> None:
    shutil.copytree(sources, tmp_path / "other")
    changed = [
        path
        for path in sorted((tmp_path / "other/ids").rglob("part_*.npz"))
        if _is_held_out(path, tmp_path / "other/ids")
    ]
    assert 0 < len(changed) < 6
    for path in changed:
        write_shard(path, np.full(5000, 300))
    build_table(sources, tmp_path / "one", CONFIG, VAL_EVERY)
    figures = build_table(tmp_path / "other", tmp_path / "two", CONFIG, VAL_EVERY)
    assert figures["training_shards"] == 6 - len(changed)
    one, two = (tmp_path / n / "table.npz" for n in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def _is_held_out(path: Path, ids: Path) -> bool:
    """Tell by the rule itself, not by our own function."""
    return zlib.crc32(path.relative_to(ids).as_posix().encode()) % VAL_EVERY == 0


def test_own_codebook_stands_for_the_codec(sources: Path, tmp_path: Path) -> None:
    codebook = np.random.default_rng(0).standard_normal((500, 6)).astype(np.float32)
    np.save(tmp_path / "clips.npy", codebook)
    config = CONFIG.replace(codebooks={"video": tmp_path / "clips.npy"})
    figures = build_table(sources, tmp_path / "out", config, VAL_EVERY)
    assert figures["bands"] == {"image": "random", "audio": "random", "video": "codebook"}
    assert figures["rank_correlation"]["video"] > 0.3


def test_ids_without_a_layout_are_rows_of_the_packed_table(tmp_path: Path) -> None:
    bits = np.random.default_rng(0).integers(0, 2, (64, 512), dtype=np.uint8)
    np.save(tmp_path / "old.npy", np.packbits(bits, axis=1))
    write_shard(tmp_path / "sources/ids/a/b/part_0.npz", np.arange(64).repeat(2))
    config = CONFIG.replace(vectors="packed", vectors_path=tmp_path / "old.npy")
    figures = build_table(tmp_path / "sources", tmp_path / "out", config, val_every=1 << 19)
    table = Table.load(tmp_path / "out/table.npz")
    assert np.array_equal(table.bits[:64], bits)
    assert figures["bias"]["tokens"] == 128
    assert not list((tmp_path / "out").glob("pieces*"))


def test_all_shards_held_out_is_refused(sources: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ids.*training shards.*val_every 1"):
        build_table(sources, tmp_path, CONFIG, val_every=1)


def test_id_outside_the_layout_names_its_shard(sources: Path, tmp_path: Path) -> None:
    shutil.copytree(sources, tmp_path / "other")
    write_shard(tmp_path / "other/ids/knowledge/docs/part_00009.npz", np.array([1, 10**6]))
    with pytest.raises(DataError, match=r"part_00009\.npz.*1000000"):
        build_table(tmp_path / "other", tmp_path / "out", CONFIG, 10**6)
    assert not (tmp_path / "out/table.npz").exists()


def test_absurd_id_without_a_layout_is_refused(tmp_path: Path) -> None:
    write_shard(tmp_path / "ids/a/b/part_0.npz", np.array([1, 2**32 - 1]))
    with pytest.raises(DataError, match=r"part_0\.npz"):
        build_table(tmp_path, tmp_path / "out", CONFIG, 1 << 19)
