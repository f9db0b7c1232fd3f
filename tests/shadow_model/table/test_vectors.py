import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from shadow_model.errors import DataError
from shadow_model.table.vectors import match_rows, match_vectors, read_packed, read_vectors


@pytest.fixture
def matrix() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((12, 3)).astype(np.float32)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """Rows 0-5: the unknown piece, two words with a space, two halves, a word without."""
    names = ["<unk>", "\u2581river", "\u2581piano", "ri", "ver", "boat"]
    model = models.WordPiece(
        {name: i for i, name in enumerate(names)} | {"##ver": 6, "##er": 7, "wat": 8},
        unk_token="<unk>",
    )
    made = Tokenizer(model)
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_npy_and_safetensors_read_the_same(matrix: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", matrix)
    save_file({"embedding": matrix, "scale": np.ones(3, np.float32)}, tmp_path / "m.safetensors")
    for name in ("m.npy", "m.safetensors"):
        assert np.array_equal(read_vectors(tmp_path / name), matrix)


def test_half_precision_is_widened(matrix: np.ndarray, tmp_path: Path) -> None:
    save_file({"e": matrix.astype(np.float16)}, tmp_path / "half.safetensors")
    read = read_vectors(tmp_path / "half.safetensors")
    assert read.dtype == np.float32
    assert np.array_equal(read, matrix.astype(np.float16).astype(np.float32))


def test_bfloat16_is_widened(matrix: np.ndarray, tmp_path: Path) -> None:
    upper = (matrix.view("<u4") >> 16).astype("<u2")
    header = {"e": {"dtype": "BF16", "shape": [12, 3], "data_offsets": [0, 72]}}
    text = json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + upper.tobytes()
    (tmp_path / "b.safetensors").write_bytes(content)
    read = read_vectors(tmp_path / "b.safetensors")
    # 2**-7: bfloat16 keeps 8 bits of the mantissa, cut off here
    assert np.allclose(read, matrix, rtol=2**-7)


def test_one_of_several_matrices_is_named(matrix: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"embed": matrix, "head": matrix * 2}, path)
    assert np.array_equal(read_vectors(path, "head"), matrix * 2)
    with pytest.raises(DataError, match=r"model\.safetensors.*embed.*head"):
        read_vectors(path)
    with pytest.raises(DataError, match="named 'tail'"):
        read_vectors(path, "tail")


@pytest.mark.parametrize(
    "array", [np.zeros(4, np.float32), np.zeros((4, 2), np.int32), np.zeros((0, 2), np.float32)]
)
def test_what_is_no_matrix_of_floats_is_refused(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", array)
    with pytest.raises(DataError, match=r"m\.npy.*matrix of floats"):
        read_vectors(tmp_path / "m.npy")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_row_of_a_bad_number_is_named(value: float, matrix: np.ndarray, tmp_path: Path) -> None:
    matrix[7, 1] = value
    np.save(tmp_path / "m.npy", matrix)
    with pytest.raises(DataError, match="row 7"):
        read_vectors(tmp_path / "m.npy")


@pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY\x01\x00"])
@pytest.mark.parametrize("name", ["m.npy", "m.safetensors"])
def test_unreadable_file_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=name):
        read_vectors(tmp_path / name)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=name):
        read_vectors(tmp_path / name)


def test_cut_off_safetensors_is_refused(matrix: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"e": matrix}, path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"m\.safetensors.*bytes"):
        read_vectors(path)


def test_packed_bits_come_most_significant_first(tmp_path: Path) -> None:
    bits = np.random.default_rng(0).integers(0, 2, (5, 512), dtype=np.uint8)
    np.save(tmp_path / "old.npy", np.packbits(bits, axis=1))
    assert np.array_equal(read_packed(tmp_path / "old.npy"), bits)


@pytest.mark.parametrize("array", [np.zeros((5, 64), np.int8), np.zeros((5, 512), np.uint8)])
def test_packed_table_of_another_shape_is_refused(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "old.npy", array)
    with pytest.raises(DataError, match=r"old\.npy.*64"):
        read_packed(tmp_path / "old.npy")


def test_without_a_tokenizer_rows_are_old_ids(matrix: np.ndarray) -> None:
    matrix[4] = 0
    found = match_vectors(matrix, Path("m.npy"), None, None, None)
    assert np.array_equal(found.vectors, matrix)
    assert np.flatnonzero(~found.known).tolist() == [4]
    assert len(match_vectors(matrix, Path("m.npy"), None, None, 10).known) == 10
    with pytest.raises(DataError, match=r"m\.npy.*13.*12 rows"):
        match_vectors(matrix, Path("m.npy"), None, None, 13)


def test_pieces_take_rows_of_the_same_text(matrix, pieces, tokenizer: Path) -> None:
    found = match_vectors(matrix, Path("m.npy"), pieces, tokenizer, pieces.size)
    places = {pieces.piece_text(i): i for i in range(pieces.size)}
    assert np.array_equal(found.vectors[places[" river"]], matrix[1])
    assert np.array_equal(found.vectors[places[" piano"]], matrix[2])
    assert np.array_equal(found.vectors[places[" boat"]], matrix[5])
    assert not found.known[places[" violin"]]
    assert not found.known[pieces.byte_ids].any()


def test_pieces_that_are_cut_take_the_mean(matrix, pieces, tokenizer: Path) -> None:
    found = match_vectors(matrix, Path("m.npy"), pieces, tokenizer, pieces.size)
    places = {pieces.piece_text(i): i for i in range(pieces.size)}
    assert np.allclose(found.vectors[places[" water"]], (matrix[8] + matrix[7]) / 2, atol=1e-6)
    assert found.counts["mean"] >= 1


def test_matrix_smaller_than_its_tokenizer_is_refused(matrix, pieces, tokenizer: Path) -> None:
    with pytest.raises(DataError, match=r"m\.npy.*9 in all.*5 rows"):
        match_vectors(matrix[:5], Path("m.npy"), pieces, tokenizer, pieces.size)
    with pytest.raises(DataError, match=r"m\.npy.*9 in all.*5 rows"):
        match_rows(5, Path("m.npy"), pieces, tokenizer, pieces.size)


def test_what_is_no_tokenizer_is_refused(matrix, pieces, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(DataError, match=r"tokenizer\.json"):
        match_vectors(matrix, Path("m.npy"), pieces, path, pieces.size)


def test_packed_rows_are_given_once(pieces, tokenizer: Path) -> None:
    rows = match_rows(9, Path("m.npy"), pieces, tokenizer, pieces.size)
    given = rows[rows >= 0]
    assert len(given) == len(np.unique(given)) >= 3
    assert match_rows(4, Path("m.npy"), None, None, 6).tolist() == [0, 1, 2, 3, -1, -1]
