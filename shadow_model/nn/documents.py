"""Documents within a window: where the one that a position belongs to begins.

The separator is the last token of the document that it ends. A position reads the tokens of its own
document alone: those from its `first` on. Attention within documents is Llama 3's
(arXiv 2407.21783, section 3.2): it mattered little there for short windows, much for long ones. No
position then learns to read what merely happened to be packed before it.

Legend: B batch, T tokens.
"""

import torch
from torch import Tensor


def document_starts(
    ids_BT: Tensor, separator: int, position: int = 0, begun_B: Tensor | None = None
) -> Tensor:
    """Return the place of the first token of each position's document.

    Args:
        ids_BT: (B, T) int64 rows of the table.
        separator: The row that ends a document.
        position: Place of the first of these rows in a longer context.
        begun_B: (B,) int64, where the document began that the first of these rows belongs to;
            None: with it.

    Returns:
        (B, T + 1) int64 places in that context; the last is that of the row to follow.
    """
    if begun_B is None:
        begun_B = torch.full_like(ids_BT[:, 0], position)
    after = torch.arange(1, ids_BT.shape[1] + 1, device=ids_BT.device) + position
    begins = torch.where(ids_BT == separator, after, 0)
    starts: Tensor = torch.cat([begun_B[:, None], begins], 1).cummax(1).values
    return starts
