"""A full disk is named, and what stood before is whole."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from shadow_model.disk import is_full, naming_full_disk, require_space
from shadow_model.errors import DataError
from shadow_model.receipt import Identity
from shadow_model.store import Store

_LIMIT = 1 << 20
BUILD = """
import resource, sys
from pathlib import Path
from shadow_model.receipt import Identity
from shadow_model.store import Store
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
with Store(Path(sys.argv[1])).build(Identity.of("big", (), {}, [])) as build:
    (build.folder / "out.bin").write_bytes(bytes(2 << 20))
"""


def small(number: int) -> Identity:
    return Identity.of("small", (), {"number": number}, ["shadow_model.table.layout"])


def fill(store: Store, identity: Identity, num_bytes: int) -> None:
    with store.build(identity) as build:
        (build.folder / "out.bin").write_bytes(bytes(num_bytes))


def test_room_is_asked_for_before(tmp_path: Path) -> None:
    require_space(tmp_path / "new", 1)
    with pytest.raises(DataError, match=r"must have .* MiB free; found .*shadow gc"):
        require_space(tmp_path / "new", 1 << 62)


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EDQUOT, "quota"), True),
        (OSError(errno.EFBIG, "too large"), True),
        (RuntimeError("I/O error: No space left on device (os error 28)"), True),
        (OSError(errno.EIO, "I/O"), False),
        (OSError("1024 requested and 0 written"), False),
        (ValueError("bug"), False),
    ],
    ids=repr,
)
def test_which_errors_mean_a_full_disk(tmp_path: Path, error: Exception, full: bool) -> None:
    assert is_full(error, tmp_path) is full


def test_a_limit_on_file_size_is_told_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    store = Store(tmp_path)
    fill(store, small(0), 1000)
    run = subprocess.run(
        [sys.executable, "-c", BUILD, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert f"DataError: {tmp_path}: must have room for what is written" in run.stderr
    assert store.find("small", small(0).key, deep=True) is not None
    assert not (tmp_path / "stages" / "big").exists()
    assert not list((tmp_path / "tmp").iterdir())


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a MiB, where this machine lets us mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={_LIMIT}", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(["mount", *options], check=False).returncode:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def array(folder: Path) -> None:
    np.zeros(1 << 21, np.uint8).tofile(folder / "array.bin")


def archive(folder: Path) -> None:
    np.savez(folder / "array.npz", ids=np.zeros(1 << 21, np.uint8))


def plain(folder: Path) -> None:
    (folder / "plain.bin").write_bytes(bytes(1 << 21))


@pytest.mark.parametrize("write", [array, archive, plain])
def test_a_full_disk_is_told_whatever_wrote(full_disk: Path, write: Callable[[Path], None]) -> None:
    store = Store(full_disk)
    fill(store, small(0), 100_000)
    with pytest.raises(DataError, match="must have room"), store.build(small(1)) as build:
        write(build.folder)
    assert store.find("small", small(0).key, deep=True) is not None
    assert store.find("small", small(0).key) is not None
    fill(store, small(1), 100_000)
    assert store.find("small", small(1).key) is not None, "what was half-written made room"


def test_a_disk_without_a_free_byte_still_tells_what_it_holds(full_disk: Path) -> None:
    store = Store(full_disk)
    fill(store, small(0), 100_000)
    with pytest.raises(OSError, match="No space"):
        plain(full_disk)
    assert store.find("small", small(0).key) is not None
    with pytest.raises(DataError, match="must have room"):
        fill(store, small(1), 1000)


def test_other_errors_pass_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), naming_full_disk(tmp_path):
        (tmp_path / "absent").read_bytes()
