"""Query positions, block selection and the index loss against their plain forms."""

import pytest
import torch
from torch import Tensor

from shadow_model.nn.index import draw_query_positions, index_kl, select_blocks


def draw(*shape: int, seed: int = 21) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_positions_are_sorted_in_range_and_keyed() -> None:
    rows = draw_query_positions(3, 7, calls=16, tokens=1000)
    assert rows.shape == (16, 64)
    assert rows.dtype == torch.int64
    assert torch.equal(rows, rows.sort(dim=1).values)
    assert 128 <= int(rows.min()) <= int(rows.max()) < 1000
    assert torch.equal(rows[:10], draw_query_positions(3, 7, calls=10, tokens=1000))
    others = [
        draw_query_positions(4, 7, 16, 1000),
        draw_query_positions(3, 8, 16, 1000),
        draw_query_positions(3, 7, 16, 1000, micro_batch=1),
        rows.roll(1, 0),
    ]
    assert not any(torch.equal(rows, other) for other in others)


def test_every_position_can_be_drawn() -> None:
    rows = draw_query_positions(0, 0, calls=40, tokens=40, block=16, num=32)
    assert rows.unique().tolist() == list(range(16, 40))


def test_short_windows_have_no_positions() -> None:
    assert draw_query_positions(0, 0, calls=5, tokens=255).shape == (5, 0)
    assert draw_query_positions(0, 0, calls=5, tokens=256).shape == (5, 64)


def plain_selection(query: Tensor, key: Tensor, block: int, top: int) -> Tensor:
    tokens = len(query)
    num = -(-tokens // block)
    chosen = torch.zeros(tokens, num, dtype=torch.bool)
    for t in range(tokens):
        own = t // block
        score = [float((query[t] @ key[j * block : (j + 1) * block].t()).max()) for j in range(own)]
        best = sorted(range(own), key=lambda j: (-score[j], j))[:top]
        chosen[t, [own, *best]] = True
    return chosen


@pytest.mark.parametrize(("tokens", "block", "top"), [(64, 8, 3), (61, 8, 2), (20, 8, 5)])
def test_selection_equals_the_plain_form(tokens: int, block: int, top: int) -> None:
    # small whole numbers: ties are frequent, and sums are exact in any order
    query, key = draw(2, tokens, 4).mul(2).round(), draw(2, tokens, 4, seed=22).mul(2).round()
    found = select_blocks(query, key, block, top)
    for b in range(2):
        assert torch.equal(found[b], plain_selection(query[b], key[b], block, top))


def test_ties_go_to_the_lower_block() -> None:
    chosen = select_blocks(torch.ones(1, 50, 2), torch.ones(1, 50, 2), 10, 2)
    assert chosen[0, 45].tolist() == [True, True, False, False, True]


def plain_kl(iq: Tensor, ik: Tensor, q: Tensor, k: Tensor, positions: Tensor, block: int) -> Tensor:
    batch, tokens, heads, width = q.shape
    total = torch.zeros(())
    for b in range(batch):
        for s in positions.tolist():
            past = s + 1
            mass = torch.zeros(-(-tokens // block))
            for h in range(heads):
                g = h // (heads // k.shape[2])
                p = ((k[b, :past, g] @ q[b, s, h]) * width**-0.5).softmax(0)
                mass.index_add_(0, torch.arange(past) // block, p.detach() / heads)
            score = (ik[b, :past] @ iq[b, s]) * iq.shape[-1] ** -0.5
            last = s // block + 1
            best = torch.stack([score[j * block : (j + 1) * block].max() for j in range(last)])
            mass = mass[:last]
            total = total + (mass * ((mass + 1e-9).log() - best.log_softmax(0))).sum()
    return total / (batch * len(positions))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_index_loss_equals_the_plain_form(groups: int) -> None:
    iq, ik = draw(2, 45, 8).requires_grad_(), draw(2, 45, 8, seed=23).requires_grad_()
    query, key = draw(2, 45, 4, 6, seed=24), draw(2, 45, groups, 6, seed=25)
    positions = torch.tensor([10, 19, 20, 20, 44])
    results = []
    for compute in (index_kl, plain_kl):
        loss = compute(iq, ik, query, key, positions, 10)
        loss.backward()
        results.append((loss.detach(), iq.grad, ik.grad))
        iq.grad = ik.grad = None
    # 1e-6: float32 sums in another order
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-6)


def test_index_loss_teaches_the_index_branch_alone() -> None:
    tensors = [draw(1, 40, 8), draw(1, 40, 8), draw(1, 40, 2, 4), draw(1, 40, 1, 4)]
    for tensor in tensors:
        tensor.requires_grad_()
    index_kl(*tensors, torch.tensor([15, 39]), 10).backward()
    assert tensors[0].grad is not None
    assert tensors[1].grad is not None
    assert tensors[2].grad is None
    assert tensors[3].grad is None


def test_scores_stay_float32_under_autocast() -> None:
    tensors = (draw(1, 40, 8), draw(1, 40, 8), draw(1, 40, 2, 4), draw(1, 40, 1, 4))
    positions = torch.tensor([15, 39])
    with torch.autocast("cpu", torch.bfloat16):
        found = index_kl(*tensors, positions, 10), select_blocks(*tensors[:2], 10, 1)
    expected = index_kl(*tensors, positions, 10), select_blocks(*tensors[:2], 10, 1)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


def test_index_loss_over_what_is_read_alone() -> None:
    """Equal to the loss of a window that holds no more than the chosen blocks."""
    block, tokens = 5, 30
    iq, ik = draw(1, tokens, 8).requires_grad_(), draw(1, tokens, 8, seed=23).requires_grad_()
    query, key = draw(1, tokens, 4, 6, seed=24), draw(1, tokens, 2, 6, seed=25)
    kept = torch.cat([torch.arange(5, 10), torch.arange(15, 30)])  # blocks 1, 3, 4, 5
    chosen = torch.zeros(1, tokens, 6, dtype=torch.bool)
    chosen[..., [1, 3, 4, 5]] = True
    positions = torch.tensor([16, 20, 29])
    found = index_kl(iq, ik, query, key, positions, block, chosen)
    found.backward()
    slopes, iq.grad, ik.grad = (iq.grad, ik.grad), None, None
    short = (t[:, kept] for t in (iq, ik, query, key))
    expected = plain_kl(*short, positions - 10, block)
    expected.backward()
    # 1e-6: float32 sums in another order
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(slopes, (iq.grad, ik.grad), rtol=1e-5, atol=1e-6)
    assert (slopes[1][0, :5] == 0).all()
    dense = index_kl(iq, ik, query, key, positions, block)
    assert abs(float(dense.detach() - found.detach())) > 1e-3


def test_documents_confine_selection_and_loss() -> None:
    # the same rows as a window of their own: nothing of another document counts
    begins, block, top = 24, 8, 2
    iq, ik = draw(1, 80, 8).requires_grad_(), draw(1, 80, 8, seed=23).requires_grad_()
    query, key = draw(1, 80, 4, 6, seed=24), draw(1, 80, 2, 6, seed=25)
    first = torch.zeros(1, 80, dtype=torch.int64)
    first[:, begins:] = begins
    whole = select_blocks(iq, ik, block, top, first)
    alone = select_blocks(iq[:, begins:], ik[:, begins:], block, top)
    assert torch.equal(whole[:, begins:, begins // block :], alone)
    assert not whole[:, begins:, : begins // block].any()
    positions = torch.tensor([40, 63, 79])
    found = index_kl(iq, ik, query, key, positions, block, None, first)
    parts = [t[:, begins:] for t in (iq, ik, query, key)]
    expected = index_kl(*parts, positions - begins, block)
    # 1e-6: float32 sums in another order
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("begins", [5, 17, 30])
def test_selection_in_a_document_that_begins_inside_a_block(begins: int) -> None:
    query, key = draw(1, 61, 4).mul(2).round(), draw(1, 61, 4, seed=22).mul(2).round()
    first = torch.zeros(1, 61, dtype=torch.int64)
    first[:, begins:] = begins
    found = select_blocks(query, key, 8, 2, first)[0]
    for t in range(begins, 61):
        own = t // 8
        past = range(begins // 8, own)
        score = [float((key[0, max(8 * j, begins) : 8 * j + 8] @ query[0, t]).max()) for j in past]
        best = sorted(range(len(past)), key=lambda i: (-score[i], i))[:2]
        assert found[t].nonzero()[:, 0].tolist() == sorted({own, *(past[i] for i in best)})
