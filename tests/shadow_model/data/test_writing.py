from pathlib import Path

import pytest

from shadow_model.data.writing import require_space, whole_file
from shadow_model.errors import DataError


def test_room_that_no_disk_has_is_refused_with_the_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="MiB free") as caught:
        require_space(tmp_path / "new", 1 << 62)
    assert caught.value.where == str(tmp_path / "new")


def test_room_that_is_there_passes_and_makes_the_folder(tmp_path: Path) -> None:
    require_space(tmp_path / "new", 1)
    assert (tmp_path / "new").is_dir()


def test_a_file_appears_at_the_end_of_the_block(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    with whole_file(path) as temporary:
        temporary.write_bytes(b"all")
        assert not path.exists()
    assert path.read_bytes() == b"all"
    assert list(path.parent.iterdir()) == [path]


def test_an_exception_keeps_the_old_file_and_leaves_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail_half_way() -> None:
        with whole_file(path) as temporary:
            temporary.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_half_way()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
