"""Locks of paths."""

import os
import threading
from pathlib import Path

from shadow_model.locking import is_locked, locked, try_lock


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    assert not is_locked(path)
    assert not path.exists(), "asking makes no file"
    held = try_lock(path)
    assert held is not None
    assert try_lock(path) is None
    assert is_locked(path)
    os.close(held)
    assert not is_locked(path)


def test_a_block_waits_for_its_lock(tmp_path: Path) -> None:
    path, order = tmp_path / "a.lock", list[str]()
    held = try_lock(path)
    assert held is not None

    def enter() -> None:
        with locked(path):
            order.append("entered")

    thread = threading.Thread(target=enter)
    thread.start()
    order.append("freed")
    os.close(held)
    thread.join()
    assert order == ["freed", "entered"]
    assert not is_locked(path)
