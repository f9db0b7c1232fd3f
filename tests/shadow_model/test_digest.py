"""A remembered digest is never that of other bytes."""

import hashlib
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from shadow_model import digest
from shadow_model.digest import DigestMemo, sha256_file, sha256_text
from shadow_model.errors import DataError


def age(path: Path, seconds: float = 10.0) -> None:
    """Set the time of a file back, so that it counts as settled."""
    past_ns = time.time_ns() - int(seconds * 1e9)
    os.utime(path, ns=(past_ns, past_ns))


def test_digests_are_sha256(tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = os.urandom((1 << 22) + 17)  # more than one chunk
    path.write_bytes(content)
    assert sha256_file(path) == hashlib.sha256(content).hexdigest()
    assert sha256_text("é") == hashlib.sha256("é".encode()).hexdigest()
    assert DigestMemo(tmp_path / "memo.sqlite").digest(path) == sha256_file(path)


def test_settled_file_is_read_once_and_a_renamed_one_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, memo = tmp_path / "file", DigestMemo(tmp_path / "memo.sqlite")
    path.write_bytes(b"abc")
    age(path)
    first = memo.digest(path)
    monkeypatch.setattr(digest, "sha256_file", lambda _: pytest.fail("read again"))
    assert memo.digest(path) == first
    assert memo.digest(path.rename(tmp_path / "other")) == first
    assert DigestMemo(tmp_path / "memo.sqlite").digest(tmp_path / "other") == first


def test_edit_of_the_same_size_is_seen_at_once(tmp_path: Path) -> None:
    path, memo = tmp_path / "file", DigestMemo(tmp_path / "memo.sqlite")
    for number in range(50):  # writes within one tick of the file system's clock
        path.write_bytes(b"%02d" % number)
        assert memo.digest(path) == sha256_file(path)


def test_replaced_file_of_the_same_size_and_time_is_seen(tmp_path: Path) -> None:
    path, memo = tmp_path / "file", DigestMemo(tmp_path / "memo.sqlite")
    path.write_bytes(b"abc")
    age(path)
    memo.digest(path)
    other = tmp_path / "other"
    other.write_bytes(b"xyz")
    stamp_ns = path.stat().st_mtime_ns
    os.utime(other, ns=(stamp_ns, stamp_ns))
    other.replace(path)
    assert memo.digest(path) == sha256_text("xyz")


def test_absent_file_is_no_digest(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DigestMemo(tmp_path / "memo.sqlite").digest(tmp_path / "none")


def test_many_threads_share_one_memo(tmp_path: Path) -> None:
    paths = [tmp_path / f"file_{i}" for i in range(24)]
    for path in paths:
        path.write_text(path.name)
        age(path)
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda p: DigestMemo(tmp_path / "m" / "memo.sqlite").digest(p), paths)
        )
    assert found == [sha256_text(p.name) for p in paths]
    with closing(sqlite3.connect(tmp_path / "m" / "memo.sqlite")) as memo:
        assert memo.execute("SELECT count(*) FROM digests").fetchone() == (24,)


def test_a_memo_that_is_no_database_is_named(tmp_path: Path) -> None:
    path, memo = tmp_path / "file", tmp_path / "memo.sqlite"
    path.write_bytes(b"abc")
    memo.write_bytes(b"not a database, but as long as its header is" * 9)
    with pytest.raises(DataError, match=r"memo\.sqlite: must be the memo .* Remove it"):
        DigestMemo(memo).digest(path)
