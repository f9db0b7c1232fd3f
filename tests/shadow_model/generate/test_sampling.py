"""Drawing: the best row, the best few, shares as softmax says, equal from equal seeds."""

import torch

from shadow_model.generate.sampling import Sampling, draw, generators

LOGITS = torch.tensor([1.0, 3.0, 3.0, 2.0, 9.0])
ALLOWED = torch.tensor([True, True, True, True, False])


def many(sampling: Sampling, num: int = 4000) -> torch.Tensor:
    """Return the shares of the places drawn."""
    (chance,) = generators(sampling, 1)
    drawn = torch.tensor([draw(LOGITS, ALLOWED, sampling, chance) for _ in range(num)])
    return torch.bincount(drawn, minlength=5) / num


def test_without_temperature_the_lowest_of_the_best_is_taken() -> None:
    assert many(Sampling(temperature=0), 20).tolist() == [0, 1, 0, 0, 0]


def test_shares_follow_the_softmax_at_a_temperature() -> None:
    for temperature in (0.5, 2.0):
        expected = (LOGITS / temperature).masked_fill(~ALLOWED, -torch.inf).softmax(0)
        found = many(Sampling(temperature=temperature))
        assert (found - expected).abs().max() < 0.03  # 4 standard errors of 4000 draws


def test_top_k_draws_from_the_best_alone() -> None:
    shares = many(Sampling(temperature=1, top_k=3), 500)
    assert shares[[0, 4]].sum() == 0
    assert (shares[1:4] > 0).all()


def test_equal_seeds_draw_equally_whatever_is_beside_them() -> None:
    one, other = Sampling(seed=5), Sampling(seed=4)
    beside = generators(other, 3)
    drawn = [draw(LOGITS, ALLOWED, other, beside[1]) for _ in range(50)]
    (alone,) = generators(one, 1)
    assert drawn == [draw(LOGITS, ALLOWED, one, alone) for _ in range(50)]
    assert drawn != [draw(LOGITS, ALLOWED, other, beside[2]) for _ in range(50)]
