"""Linear-attention memory: a matrix a head that decays, and to which written tokens add.

    S_t = α_t S_{t-1} + β_t k_t u_tᵀ,   o_t = S_tᵀ q_t
    rule "gla":    u_t = v_t
    rule "delta":  u_t = v_t - (α_t S_{t-1})ᵀ k_t, the old value of k_t taken away

Blocks of 64 tokens at once: within a block the tokens see one another by decays
G_ts = exp(c^r_t - c_s), masked before the exponential, so that no difference of exponents crosses a
document; the delta rule solves one unit lower triangular system a block.

Legend: B rows, H heads, T tokens, Q tokens of a block that read, S that are read, K key width,
V value width.

Source: gated linear attention (arXiv 2312.06635); gated delta rule (arXiv 2412.06464).
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

Rule = Literal["gla", "delta"]
_BLOCK = 64


class Recalled(NamedTuple):
    """What a memory gives.

    Attributes:
        out: (B, H, T, V).
        last: (B, H, K, V), the memory after the chunk.
    """

    out: Tensor
    last: Tensor


class _Block(NamedTuple):
    """Some tokens, and the documents that began since the first of them."""

    query: Tensor
    key: Tensor
    value: Tensor
    log_decay: Tensor
    weight: Tensor
    document: Tensor
    write: Tensor


def linear_memory(
    query_BHTK: Tensor,
    key_BHTK: Tensor,
    value_BHTV: Tensor,
    log_decay_BHT: Tensor,
    weight_BHT: Tensor,
    first_BHKV: Tensor | None,
    *,
    reset_BT: Tensor,
    write_BT: Tensor,
    rule: Rule,
    block: int = _BLOCK,
) -> Recalled:
    """Read and write a chunk.

    Args:
        log_decay_BHT: log α, at most 0.
        weight_BHT: β, in [0, 1].
        first_BHKV: The memory before the chunk; None: zeros.
        reset_BT: bool, the memory is cleared before this token.
        write_BT: bool, later tokens see this one; it sees itself in any case.
        block: Tokens worked on at once; it changes no more than the rounding.
    """
    heads, tokens = query_BHTK.shape[1], query_BHTK.shape[2]
    memory = first_BHKV
    if memory is None:
        shape = (len(query_BHTK), heads, key_BHTK.shape[-1], value_BHTV.shape[-1])
        memory = query_BHTK.new_zeros(shape)
    outs = []
    for begin in range(0, tokens, block):
        part = slice(begin, begin + block)
        tokens_here = _Block(
            query=query_BHTK[:, :, part],
            key=key_BHTK[:, :, part],
            value=value_BHTV[:, :, part],
            log_decay=log_decay_BHT[:, :, part],
            weight=weight_BHT[:, :, part],
            document=reset_BT[:, part].long().cumsum(1),
            write=write_BT[:, part],
        )
        out, memory = _step(tokens_here, memory, rule)
        outs.append(out)
    return Recalled(torch.cat(outs, 2), memory)


def _step(block: _Block, memory: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    written = block.write.unsqueeze(1)
    summed = torch.where(written, block.log_decay, 0.0).cumsum(-1)
    read = torch.where(written, summed, summed + block.log_decay)  # unwritten: its own, once
    decays = _decays(block, read, summed)
    goes_on = (block.document == 0).unsqueeze(1)
    from_memory = torch.where(goes_on, read.exp(), 0.0).unsqueeze(-1)
    change = _change(block, memory, decays, from_memory, rule)
    scores = (block.query @ block.key.transpose(-1, -2)) * decays
    own = (block.query * block.key).sum(-1, keepdim=True) * change
    out = from_memory * (block.query @ memory) + scores @ change + own
    return out, _after(block, memory, summed, change)


def _decays(block: _Block, read: Tensor, summed: Tensor) -> Tensor:
    """Return G: (B, H, Q, S), how much of what s wrote is left when t reads; 0 where it cannot."""
    size = block.document.shape[1]
    earlier = torch.ones(size, size, dtype=torch.bool, device=read.device).tril(-1)
    same = block.document.unsqueeze(2) == block.document.unsqueeze(1)
    seen = (earlier & same & block.write.unsqueeze(1)).unsqueeze(1)
    exponent = read.unsqueeze(-1) - summed.unsqueeze(-2)
    return exponent.masked_fill(~seen, -torch.inf).exp()


def _change(
    block: _Block, memory: Tensor, decays: Tensor, from_memory: Tensor, rule: Rule
) -> Tensor:
    """Return β u: (B, H, T, V)."""
    weight = block.weight.unsqueeze(-1)
    if rule == "gla":
        return weight * block.value
    new = weight * (block.value - from_memory * (block.key @ memory))
    among = weight * (block.key @ block.key.transpose(-1, -2)) * decays
    solved: Tensor = torch.linalg.solve_triangular(among, new, upper=False, unitriangular=True)
    return solved


def _after(block: _Block, memory: Tensor, summed: Tensor, change: Tensor) -> Tensor:
    last = block.document[:, -1:]
    kept = ((block.document == last) & block.write).unsqueeze(1)
    left = torch.where(kept, (summed[..., -1:] - summed).exp(), 0.0).unsqueeze(-1)
    old = torch.where(last == 0, summed[..., -1].exp(), 0.0)[..., None, None]
    return old * memory + (block.key * left).transpose(-1, -2) @ change
