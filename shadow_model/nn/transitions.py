"""From which kind of place to which kind of row: how a target is reached.

    text->text     outside spans, a language row
    text->marker   outside spans, a marker or control
    span->band     inside a span, a row of its band
    span->end      inside a span, a marker or control: as a rule the one that ends it

Legend: B batch, T tokens.
"""

from torch import Tensor

TRANSITIONS = ("text->text", "text->marker", "span->band", "span->end")


def transitions_of(kinds: Tensor, targets: Tensor, first_marker: int) -> Tensor:
    """Return each target's transition.

    Args:
        kinds: (B, T) integers, the kind of the token that follows each position.
        targets: (B, T) int64, the row that does follow, of that kind's row set.
        first_marker: First marker row; controls follow the markers.

    Returns:
        (B, T) int64 index into TRANSITIONS.
    """
    return 2 * (kinds > 0).long() + (targets >= first_marker).long()
