"""Ternary signs packed five to a byte: 3^5 = 243 of 256 values, 1.6 bits a sign.

A byte is the sum of (sign + 1) · 3^i, i = 0 the first of its five signs.
"""

import torch
from torch import Tensor

TRITS_PER_BYTE = 5
_CHUNK_BYTES = 1 << 20
_NUM_BYTES = 256


def packed_bytes(num_signs: int) -> int:
    """Return how many bytes so many signs take."""
    return -(-num_signs // TRITS_PER_BYTE)


def pack_trits(signs: Tensor) -> Tensor:
    """Pack signs.

    Args:
        signs: (N,) of -1, 0 and 1, any dtype.

    Returns:
        (ceil(N / 5),) uint8; the last byte is filled with zeros.
    """
    out = torch.empty(packed_bytes(len(signs)), dtype=torch.uint8, device=signs.device)
    powers = (3 ** torch.arange(TRITS_PER_BYTE, device=signs.device)).to(torch.int16)
    for first in range(0, len(out), _CHUNK_BYTES):
        part = signs[first * TRITS_PER_BYTE : (first + _CHUNK_BYTES) * TRITS_PER_BYTE]
        digits = torch.nn.functional.pad(part.to(torch.int16), (0, -len(part) % TRITS_PER_BYTE))
        packed = ((digits + 1).view(-1, TRITS_PER_BYTE) * powers).sum(1)
        out[first : first + len(packed)] = packed.to(torch.uint8)
    return out


def unpack_trits(packed: Tensor, num_signs: int) -> Tensor:
    """Return the first `num_signs` packed signs: (N,) int8."""
    return trit_table(packed.device)[packed.long()].flatten()[:num_signs]


def trit_table(device: torch.device | None = None) -> Tensor:
    """Return (256, 5) int8: the signs of every byte; those from 243 on mean nothing."""
    byte = torch.arange(_NUM_BYTES, device=device)[:, None]
    power = 3 ** torch.arange(TRITS_PER_BYTE, device=device)
    return (byte // power % 3 - 1).to(torch.int8)
