"""Locks: exclusive between threads and processes, free once their holder is gone."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tasks.locks import FlockLockManager

HOLDER = """
import sys
from pathlib import Path
from tasks.locks import FlockLockManager
FlockLockManager(Path(sys.argv[1])).acquire_lock("table-1", "other")
print("held", flush=True)
sys.stdin.read()
"""


def test_second_holder_waits_until_release(tmp_path: Path) -> None:
    locks = FlockLockManager(tmp_path)
    assert locks.acquire_lock("k", "a")
    assert locks.acquire_lock("k", "a"), "the holder has it already"
    assert not locks.acquire_lock("k", "b", acquire_timeout=0)
    assert locks.is_locked("k")
    threading.Timer(0.2, locks.release_lock, ("k", "a")).start()
    assert locks.acquire_lock("k", "b", acquire_timeout=30)
    assert locks.is_lock_holder("k", "b")
    assert not locks.is_lock_holder("k", "a")


def test_only_the_holder_can_release(tmp_path: Path) -> None:
    locks = FlockLockManager(tmp_path)
    locks.acquire_lock("k", "a")
    with pytest.raises(ValueError, match="no lock of k is held by b"):
        locks.release_lock("k", "b")
    locks.release_lock("k", "a")
    assert not locks.is_locked("k")


def test_keys_are_independent_and_asking_makes_no_file(tmp_path: Path) -> None:
    locks = FlockLockManager(tmp_path)
    locks.acquire_lock("k", "a")
    assert not locks.is_locked("other")
    assert locks.wait_for_lock("other", timeout=0)
    assert [path.name for path in tmp_path.iterdir()] == ["k.lock"]


def test_a_killed_holder_leaves_nothing_behind(tmp_path: Path) -> None:
    locks = FlockLockManager(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert locks.is_locked("table-1")
        assert not locks.wait_for_lock("table-1", timeout=0)
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert locks.acquire_lock("table-1", "me", acquire_timeout=5)
