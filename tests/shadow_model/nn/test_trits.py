"""Five signs to a byte and back."""

import pytest
import torch

from shadow_model.nn.trits import pack_trits, packed_bytes, trit_table, unpack_trits


@pytest.mark.parametrize("num", [0, 1, 4, 5, 6, 5_242_881])  # the last spans chunks
def test_round_trip(num: int) -> None:
    signs = torch.randint(-1, 2, (num,), generator=torch.Generator().manual_seed(num))
    packed = pack_trits(signs)
    assert packed.dtype == torch.uint8
    assert len(packed) == packed_bytes(num) == -(-num // 5)
    assert torch.equal(unpack_trits(packed, num), signs.to(torch.int8))


def test_the_first_sign_is_the_lowest_digit() -> None:
    packed = pack_trits(torch.tensor([1, 0, -1, 0, 0]))
    assert packed.tolist() == [2 + 1 * 3 + 0 * 9 + 1 * 27 + 1 * 81]
    assert trit_table()[packed.long()].tolist() == [[1, 0, -1, 0, 0]]
