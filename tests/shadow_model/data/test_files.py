"""The user's files: found in order, read as strict UTF-8 in blocks."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadow_model.data.files import iter_file_text, list_files, read_text, relative_name
from shadow_model.errors import DataError


def test_files_are_found_below_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.TXT", "a.txt", "c.bin", ".hidden.txt", ".git/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [relative_name(path, tmp_path) for path in list_files(tmp_path, {".txt"})]
    assert found == ["a.txt", "a/z.TXT", "b.txt"]


def test_one_file_is_a_place_too(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.touch()
    assert list_files(path, {".txt"}) == [path]
    assert relative_name(path, path) == "a.log"


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"files ending in \.rst or \.txt") as error:
        list_files(tmp_path, {".txt", ".rst"})
    assert str(tmp_path) in str(error.value)


def test_an_absent_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing there"):
        list_files(tmp_path / "absent", {".txt"})


def test_blocks_end_after_a_blank_line_or_else_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n\ntwo\nthree four five six seven")
    assert list(iter_file_text(path, 12)) == [
        "one\n\n",
        "two\n",
        "three four f",
        "ive six seve",
        "n",
    ]


@given(st.text(), st.integers(4, 20))
def test_blocks_are_the_file(
    tmp_path_factory: pytest.TempPathFactory, text: str, size: int
) -> None:
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes(text.encode())
    blocks = list(iter_file_text(path, size))
    assert "".join(blocks) == text
    assert all(0 < len(block.encode()) <= size for block in blocks)
    assert read_text(path) == text


@pytest.mark.parametrize("size", [4, 7, 1000])
def test_a_byte_that_is_no_utf8_is_named_with_its_offset(tmp_path: Path, size: int) -> None:
    path = tmp_path / "latin1.txt"
    path.write_bytes("abc\n\ndefghi größe".encode("latin-1"))
    with pytest.raises(DataError, match="byte 0xf6 at offset 14") as error:
        list(iter_file_text(path, size))
    assert str(path) in str(error.value)


def test_a_character_cut_off_at_the_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("x€".encode()[:-1])
    with pytest.raises(DataError, match="offset 1"):
        read_text(path)
