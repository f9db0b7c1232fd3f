"""Time counts over resumes, and not in updates while something else is done."""

import pytest

from shadow_model.train import clock
from shadow_model.train.clock import Clock


class _Time:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    time = _Time()
    monkeypatch.setattr(clock, "time", time)
    counted = Clock(elapsed_s=50.0, train_s=20.0)
    time.now += 3
    with counted.aside():
        time.now += 10
    time.now += 1
    assert counted.elapsed_s == 64.0
    assert counted.train_s == 24.0
