"""Sums on the device: exact when saved, and a bad update is found and named."""

import numpy as np
import pytest
import torch

from shadow_model.errors import NumericsError
from shadow_model.train.interval import Interval, StepStats

CPU = torch.device("cpu")
NAMES = ["first.weight", "second.weight"]


def _stats(
    sums: float = 2.0, kl: float = 0.5, norms: tuple[float, float] = (3.0, 4.0)
) -> StepStats:
    return StepStats(
        sums=torch.tensor([sums, 0.0, 1.0, 0.0]),
        counts=torch.tensor([4, 0, 2, 0]),
        index_kl=torch.tensor(kl),
        dropped=torch.tensor(1),
        norms=torch.tensor(norms),
    )


def _starts(first: int) -> np.ndarray:
    return np.array([first, first + 10])


def test_means() -> None:
    interval = Interval(NAMES, CPU)
    interval.add(_stats(), 0, _starts(0), 6)
    interval.add(_stats(sums=6.0, kl=1.5), 1, _starts(0), 6)
    means = interval.take()
    assert means.loss == 10 / 12
    assert means.index_kl == 1.0
    assert means.kinds["text"] == {"loss": 1.0, "count": 8}
    assert means.kinds["picture"] == {"loss": None, "count": 0}
    assert (means.dropped, means.gradient_norm, means.steps, means.tokens) == (2, 5.0, 2, 12)
    interval.add(_stats(), 2, _starts(0), 6)
    assert interval.take().steps == 1


@pytest.mark.parametrize(
    ("stats", "named"),
    [
        (_stats(sums=float("nan")), "loss"),
        (_stats(kl=float("inf")), "loss"),
        (_stats(norms=(3.0, float("nan"))), "second.weight"),
    ],
)
def test_first_bad_update_is_named_with_its_windows(stats: StepStats, named: str) -> None:
    interval = Interval(NAMES, CPU)
    interval.add(_stats(), 4, _starts(40), 6)
    interval.add(stats, 5, _starts(50), 6)
    interval.add(_stats(norms=(float("nan"), float("nan"))), 6, _starts(60), 6)
    with pytest.raises(NumericsError) as raised:
        interval.take()
    assert raised.value.where == "step 5"
    assert raised.value.found == f"non-finite {named}; its windows start at [50, 60]"
    with pytest.raises(NumericsError):
        interval.state_dict()


def test_saved_sums_continue_exactly() -> None:
    whole, cut = Interval(NAMES, CPU), Interval(NAMES, CPU)
    for interval in (whole, cut):
        interval.add(_stats(sums=1 / 3), 0, _starts(0), 6)
    resumed = Interval(NAMES, CPU)
    resumed.load_state_dict(cut.state_dict())
    for interval in (whole, resumed):
        interval.add(_stats(sums=1 / 7), 1, _starts(0), 6)
    assert whole.take() == resumed.take()
