"""The input stage sees its own document's written tokens, and nothing that comes later."""

import pytest
import torch
from torch import Tensor

from shadow_model.slab.inputs import ChebyshevMap, InputStage, Taken

TOLERANCE = 1e-13  # float64
E, H, K, T = 5, 7, 3, 20


def stage() -> InputStage:
    built = InputStage(E, H, K, 3, torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        built.taps.normal_(generator=torch.Generator().manual_seed(1))
    return built


def drawn(*shape: int, seed: int = 2) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def masks(reset: int | None = None) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(3)
    valid = torch.rand(2, T, generator=draw) < 0.9
    found = {"valid_BT": valid, "write_BT": torch.rand(2, T, generator=draw) < 0.8}
    starts = torch.zeros(2, T, dtype=torch.bool)
    if reset is not None:
        starts[:, reset] = True
    return {**found, "reset_BT": starts}


def run(
    x: Tensor,
    given: dict[str, Tensor],
    first: int = 0,
    last: int = T,
    before: Tensor | None = None,
) -> Taken:
    part = {name: mask[:, first:last] for name, mask in given.items()}
    taken: Taken = stage()(x[:, first:last], before, **part)
    return taken


def test_polynomials_are_cosines_of_multiples() -> None:
    one = ChebyshevMap(1, 1, 4, torch.Generator().manual_seed(0)).double()
    x = drawn(50, 1)
    angle = torch.acos(torch.tanh(x))
    expected = sum(one.coefficients[d] * torch.cos((d + 1) * angle) for d in range(4))
    assert (one(x) - expected).abs().max() <= TOLERANCE


@pytest.mark.parametrize("cut", [1, 7, 19])
def test_chunks_are_the_whole(cut: int) -> None:
    x, given = drawn(2, T, E), masks(reset=9)
    whole = run(x, given)
    one = run(x, given, 0, cut)
    two = run(x, given, cut, T, one.last)
    joined = torch.cat([one.core_in, two.core_in], 1)
    assert (joined - whole.core_in).abs().max() <= TOLERANCE
    assert (two.last - whole.last).abs().max() <= TOLERANCE


def test_a_token_changes_none_before_it() -> None:
    x, given = drawn(2, T, E), masks()
    other = x.clone()
    other[:, 11] += 1
    changed = (run(x, given).core_in != run(other, given).core_in).any(-1).any(0)
    assert not changed[:11].any()
    assert changed[12:15].any(), "those after it see it"


def test_nothing_passes_a_reset() -> None:
    given = masks(reset=9)
    x, other = drawn(2, T, E), drawn(2, T, E)
    other[:, :9] += 1
    assert torch.equal(run(x, given).core_in[:, 9:], run(other, given).core_in[:, 9:])


def test_what_is_invalid_gives_zeros_and_reads_as_zeros() -> None:
    x, given = drawn(2, T, E), masks()
    noisy = torch.where(given["valid_BT"].unsqueeze(-1), x, torch.nan)
    found = run(noisy, given).core_in
    assert torch.equal(found, run(x, given).core_in)
    assert (found[~given["valid_BT"]] == 0).all()
