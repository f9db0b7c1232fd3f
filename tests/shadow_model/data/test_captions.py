"""Captions: beside a file, in metadata, or its name."""

from pathlib import Path

import pytest

from shadow_model.data.captions import Captions, words_of_name
from shadow_model.errors import DataError


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("red_fox-02.png", "red fox"),
        ("redFox.png", "red Fox"),
        ("a  b.c.png", "a b c"),
        ("2024.png", "2024"),
        ("___.png", "___"),
        ("größe_x.png", "größe x"),
    ],
)
def test_a_name_becomes_words(name: str, words: str) -> None:
    assert words_of_name(Path(name)) == words


def test_a_text_file_beside_comes_first_then_metadata_then_the_name(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "metadata.csv").write_text('file_name,text\na.png,of metadata\nsub/b.png,"x, y"\n')
    (tmp_path / "sub" / "metadata.jsonl").write_text('{"file_name": "c.png", "text": "below"}\n\n')
    (tmp_path / "a.txt").write_text("beside\n")
    captions = Captions(tmp_path, "text")
    assert captions.of(tmp_path / "a.png") == "beside"
    assert captions.of(tmp_path / "sub" / "b.png") == "x, y"
    assert captions.of(tmp_path / "sub" / "c.png") == "below"
    assert captions.of(tmp_path / "sub" / "blue_bird.png") == "blue bird"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("metadata.csv", b"file_name,caption\na.png,x\n", "fields file_name and text in entry 1"),
        ("metadata.csv", b"file_name,text\na.png\n", "entry 1"),
        ("metadata.jsonl", b"{\n", "JSON in line 1"),
        ("metadata.jsonl", b"[1]\n", "object in line 1"),
        ("metadata.jsonl", b'{"file_name": "a.png", "text": 3}', "entry 1"),
        ("metadata.jsonl", b"\xff", "UTF-8"),
    ],
)
def test_faulty_metadata_are_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said) as error:
        Captions(tmp_path, "text")
    assert name in str(error.value)


def test_a_text_beside_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff")
    with pytest.raises(DataError, match="UTF-8"):
        Captions(tmp_path, "text").of(tmp_path / "a.png")
