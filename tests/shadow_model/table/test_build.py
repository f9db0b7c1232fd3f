from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shadow_model.errors import LayoutError
from shadow_model.table.build import MadeTable, log_unigram, make_table, row_counts
from shadow_model.table.config import TableConfig
from shadow_model.table.inputs import TableInputs
from shadow_model.table.layout import BAND_ROWS, REQUIRED_CONTROLS, Layout
from shadow_model.table.repair import minimum_distance, pack_rows
from shadow_model.table.store import Table

CONFIG = TableConfig(dimensions=12, itq_iterations=5, measured_pairs=2000)


@pytest.fixture(scope="module")
def media_inputs(texts, pieces) -> TableInputs:
    """Text, and a clip band of which the first codes occur."""
    rng = np.random.default_rng(0)
    vocab, rows = pieces.size, BAND_ROWS["video"]
    counts = np.zeros(vocab + rows + 5, np.int64)
    counts[:vocab] = np.bincount(np.concatenate(pieces.encode_many(texts)), minlength=vocab)
    counts[vocab : vocab + 100] = 3
    counts[vocab + rows :] = (11, 12, 13, 14, 15)
    first, second = rng.standard_normal((64, 8)), rng.standard_normal((64, 8))
    return TableInputs(
        counts=counts,
        vocab=vocab,
        texts=lambda: texts,
        bands={"video": (vocab, rows)},
        marks={"video": vocab + rows, "sep": vocab + rows + 1},
        controls={
            "[user]": vocab + rows + 2,
            "[/video]": vocab + rows + 3,
            "[tool]": vocab + rows + 4,
        },
        pieces=pieces,
        codebooks={"video": (first[:, None] + second).reshape(-1, 8).astype(np.float32)},
    )


@pytest.fixture(scope="module")
def made(media_inputs: TableInputs) -> MadeTable:
    return make_table(media_inputs, CONFIG)


def test_table_loads_and_keeps_its_distance(made: MadeTable, tmp_path: Path) -> None:
    made.table.save(tmp_path / "table.npz")
    read = Table.load(tmp_path / "table.npz")
    assert read.layout.controls == (*REQUIRED_CONTROLS, "[user]", "[tool]")
    assert minimum_distance(pack_rows(read.bits)) == made.figures["hamming"]["min"] >= 24


def test_receipt_states_every_figure(made: MadeTable, media_inputs: TableInputs) -> None:
    figures = made.figures
    rows = figures["rows"]
    assert rows["all"] == sum(n for name, n in rows.items() if name != "all")
    assert rows["language"] == media_inputs.vocab
    assert {b: rows[b] for b in BAND_ROWS} == dict(BAND_ROWS)
    assert figures["bands"] == {"image": "random", "audio": "random", "video": "codebook"}
    assert figures["collisions"] == 0
    assert figures["bit_balance"]["mean"] == pytest.approx(0.5, abs=0.01)
    assert figures["hamming"]["mean"] == pytest.approx(256, abs=4)
    assert figures["rank_correlation"]["language_semantic"] > 0.5
    assert figures["rank_correlation"]["video"] > 0.5
    assert figures["repair"]["rows_changed"] > 0
    assert figures["bias"]["tokens"] == media_inputs.counts.sum()
    assert set(figures["seconds"]) == {"language", "bands", "repair", "measure"}


def test_bias_is_the_smoothed_log_unigram(made: MadeTable, media_inputs: TableInputs) -> None:
    layout, bias = made.table.layout, made.table.bias
    total = media_inputs.counts.sum() + 0.5 * layout.num_rows
    expected = {
        layout.marks["sep"]: 12,
        layout.marks["image"]: 0,
        layout.control("[tool]"): 15,
        layout.offsets["video"] + 99: 3,
        layout.offsets["video"] + 100: 0,
        17: media_inputs.counts[17],
    }
    for row, count in expected.items():
        assert bias[row] == pytest.approx(np.log((count + 0.5) / total), rel=1e-6)
    assert np.exp(bias.astype(np.float64)).sum() == pytest.approx(1, abs=1e-4)  # float32


def test_pieces_without_a_row_count_for_their_bytes(inputs: TableInputs, pieces) -> None:
    kept = np.sort(pieces.byte_ids.astype(np.int64))
    counts, lost = row_counts(inputs, Layout(num_lang=len(kept)), kept)
    spelled = sum(int(n) * len(pieces.byte_expansion(i)) for i, n in enumerate(inputs.counts) if n)
    assert lost == 0
    assert counts.sum() == spelled > inputs.counts.sum()


def test_pieces_that_cannot_be_spelled_are_counted_as_lost() -> None:
    inputs = TableInputs(np.array([5, 0, 2, 4]), None, lambda: ())
    counts, lost = row_counts(inputs, Layout(num_lang=2), np.array([0, 3]))
    assert counts[:2].tolist() == [5, 4]
    assert lost == 2


def test_log_unigram_sums_to_one() -> None:
    bias = log_unigram(np.array([0, 1, 9]), 1.0)
    assert np.exp(bias) == pytest.approx([1 / 13, 2 / 13, 10 / 13], rel=1e-6)


def test_equal_inputs_give_equal_tables(made: MadeTable, media_inputs: TableInputs) -> None:
    again = make_table(media_inputs, CONFIG).table
    assert np.array_equal(again.bits, made.table.bits)
    assert np.array_equal(again.bias, made.table.bias)


def test_ratings_are_compared_where_named(inputs: TableInputs, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(
        "river,water,9\nriver,boat,8\npiano,song,9\nriver,piano,1\nflour,wheel,0\ngnu,river,4\n"
    )
    ratings = make_table(inputs, CONFIG.replace(ratings=path)).figures["ratings"]
    assert ratings["of"] == 6
    assert ratings["pairs"] == 5
    assert ratings["spearman"] > 0.6
    assert ratings["float_spearman"] > 0.6


def test_packed_rows_survive_repair(inputs: TableInputs, tmp_path: Path) -> None:
    bits = np.random.default_rng(0).integers(0, 2, (inputs.vocab - 5, 512), dtype=np.uint8)
    bits[1] = bits[0]
    bits[1, :3] ^= 1  # two old rows that are close, and stay so
    np.save(tmp_path / "old.npy", np.packbits(bits, axis=1))
    config = CONFIG.replace(vectors="packed", vectors_path=tmp_path / "old.npy")
    made = make_table(inputs, config)
    assert np.array_equal(made.table.bits[: len(bits)], bits)
    assert made.figures["repair"]["close_pairs_kept"] == 1
    assert made.figures["hamming"]["min"] == 3


def test_equal_rows_of_a_packed_table_are_refused(inputs: TableInputs, tmp_path: Path) -> None:
    bits = np.random.default_rng(0).integers(0, 2, (inputs.vocab, 512), dtype=np.uint8)
    bits[9] = bits[4]
    np.save(tmp_path / "old.npy", np.packbits(bits, axis=1))
    config = CONFIG.replace(vectors="packed", vectors_path=tmp_path / "old.npy")
    with pytest.raises(LayoutError, match=r"rows .*4.*9.* are equal"):
        make_table(inputs, config)


def test_text_without_words_still_makes_a_table(inputs: TableInputs) -> None:
    made = make_table(replace(inputs, texts=lambda: ["1 2 3"]), CONFIG)
    assert made.figures["vectors"]["rows_with_vectors"] == 0
    assert "language" not in made.figures["rank_correlation"]
    assert made.figures["collisions"] == 0
