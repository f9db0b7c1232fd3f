"""Masked shift: the tokens that were written before, of the same document, wherever they stand.

Written tokens are moved together; the j-th tap of a token is then the j-th of them before it, and
zeros where its document has not that many. What a chunk leaves are its last written tokens.

Legend: B rows, T tokens of a chunk, D channels, K taps.

Source: token shift (RWKV, arXiv 2305.13048).
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Shifted(NamedTuple):
    """What a shift gives.

    Attributes:
        taps: (K, B, T, D), tap j - 1 the j-th written token before.
        last: (B, K, D), the last written tokens of the last document, the newest last.
    """

    taps: Tensor
    last: Tensor


def masked_shift(
    x_BTD: Tensor, before_BKD: Tensor | None, num_taps: int, *, reset_BT: Tensor, write_BT: Tensor
) -> Shifted:
    """Shift a chunk.

    Args:
        before_BKD: `last` of the chunk before; None: zeros.
        reset_BT: bool, a document begins at this token.
        write_BT: bool, later tokens see this one; false for padding.
    """
    rows, tokens, width = x_BTD.shape
    if before_BKD is None:
        before_BKD = x_BTD.new_zeros(rows, num_taps, width)
    document = reset_BT.long().cumsum(1)
    written = write_BT.long().cumsum(1) - write_BT.long()  # before each token
    # one place more than can be filled takes what is not written
    place = torch.where(write_BT, num_taps + written, num_taps + tokens)
    together = torch.cat([before_BKD, x_BTD.new_zeros(rows, tokens + 1, width)], 1)
    together = together.scatter(1, _wide(place, width), x_BTD)
    documents = document.new_zeros(rows, num_taps + tokens + 1).scatter(1, place, document)
    taps = [
        _taken(together, documents, num_taps + written - j, document)
        for j in range(1, num_taps + 1)
    ]
    end = write_BT.sum(1, keepdim=True) + torch.arange(num_taps, device=x_BTD.device)
    last = _taken(together, documents, end, document[:, -1:])
    return Shifted(torch.stack(taps), last)


def _taken(together: Tensor, documents: Tensor, place: Tensor, document: Tensor) -> Tensor:
    """Take tokens by place, zeros where they are of another document."""
    own = (documents.gather(1, place) == document).unsqueeze(-1)
    return torch.where(own, together.gather(1, _wide(place, together.shape[-1])), 0.0)


def _wide(place_BT: Tensor, width: int) -> Tensor:
    return place_BT.unsqueeze(-1).expand(-1, -1, width)
