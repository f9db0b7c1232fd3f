"""sha256 of files, remembered by inode, size and modification time.

A remembered digest lives in a small SQLite file of the store, so that a second run of a chain
reads no output twice. A file whose size, time or inode changed is read again; a renamed one is not.
The digest of a file written a moment ago is not remembered yet: a second write within one tick of
the file system's clock would leave size and time as they were.
"""

import hashlib
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from shadow_model.errors import DataError

_CHUNK_BYTES = 1 << 22
_CLOCK_TICK_NS = 50_000_000


def sha256_file(path: Path) -> str:
    """Return the sha256 of a file's bytes in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def sha256_text(text: str) -> str:
    """Return the sha256 of a text's UTF-8 bytes in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


class DigestMemo:
    """File digests that survive the process.

    Args:
        path: SQLite file; made on first use. Safe for several processes at once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def digest(self, path: Path) -> str:
        """Return the sha256 of `path`, read only if its size, time or inode changed."""
        status, now_ns = os.stat(path), time.time_ns()
        # Text, because device and inode numbers may take all 64 bits, which SQLite cannot hold.
        identity = (*map(str, (status.st_dev, status.st_ino)), status.st_size, status.st_mtime_ns)
        with closing(self._connect()) as memo:
            row = memo.execute(
                "SELECT sha256 FROM digests WHERE device=? AND inode=? AND size=? AND mtime_ns=?",
                identity,
            ).fetchone()
            if row:
                return str(row[0])
            value = sha256_file(path)
            if now_ns - status.st_mtime_ns > _CLOCK_TICK_NS:
                with memo:
                    memo.execute("REPLACE INTO digests VALUES (?,?,?,?,?)", (*identity, value))
            return value

    def _connect(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        memo = sqlite3.connect(self._path, timeout=60)
        try:
            memo.execute(
                "CREATE TABLE IF NOT EXISTS digests "
                "(device TEXT, inode TEXT, size INT, mtime_ns INT, sha256 TEXT, "
                "PRIMARY KEY (device, inode))"
            )
        except sqlite3.OperationalError:  # busy, or no space: the file itself is sound
            memo.close()
            raise
        except sqlite3.DatabaseError as error:
            memo.close()
            fix = "Remove it: it only saves reading files again."
            raise DataError(self._path, "be the memo of file digests", error, fix) from error
        return memo
