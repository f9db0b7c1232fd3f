"""Where documents begin, in a window and across chunks of a context."""

import torch

from shadow_model.nn.documents import document_starts

IDS = torch.tensor([[5, 9, 9, 4, 3, 9], [1, 2, 3, 4, 5, 6]])


def test_separator_belongs_to_the_document_it_ends() -> None:
    starts = document_starts(IDS, 9)
    assert starts.tolist() == [[0, 0, 2, 3, 3, 3, 6], [0] * 7]


def test_chunks_go_on_where_the_last_ended() -> None:
    first = document_starts(IDS[:, :4], 9)
    second = document_starts(IDS[:, 4:], 9, 4, first[:, -1])
    assert torch.equal(torch.cat([first[:, :-1], second], 1), document_starts(IDS, 9))
