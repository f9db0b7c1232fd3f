"""The rows of a memory: hashed tables of every head in one array, read in ternary form.

Only the rows that a batch names are gathered, and only those are quantised. The scale of a head is
the mean magnitude over its rows that are not all zero: rows begin at zero, and one that no n-gram
has touched yet has no part in it. The sums behind it are whole numbers (magnitudes in units of
2^-32), so that adding up changes, as training does, gives exactly what adding up all rows does.

Two forms of the same: `LearnedRows` holds floats, `PackedRows` the exported signs, five to a byte.

Legend: B batch, T tokens, H heads, W head width, N rows over all heads, C = N·W cells.

Source: straight-through ternary weights (BitNet b1.58, arXiv 2402.17764); gather before quantising
so that a step costs what it touches.
"""

import torch
from torch import Tensor, nn

from shadow_model.nn.linear import refuse_stale
from shadow_model.nn.ngrams import MemorySize
from shadow_model.nn.quant import ternary_at
from shadow_model.nn.trits import TRITS_PER_BYTE, pack_trits, packed_bytes, trit_table

_UNITS = 2.0**32
_FLOOR = 1e-8
_CHUNK_ROWS = 1 << 17


class _Rows(nn.Module):
    """Where each head's table begins, and each head's scale."""

    offsets: Tensor
    scale: Tensor

    def __init__(self, size: MemorySize) -> None:
        super().__init__()
        self.size = size
        sizes = torch.tensor(size.primes)
        self.register_buffer("offsets", sizes.cumsum(0) - sizes, persistent=False)
        self.register_buffer("scale", torch.full((len(sizes),), _FLOOR), persistent=False)

    @property
    def num_rows(self) -> int:
        """Rows over all heads (N)."""
        return sum(self.size.primes)


class LearnedRows(_Rows):
    """Rows as training holds them: (N, W) float32, zero at first.

    Args:
        size: Rows of each head and their width.
        quantise: False reads the float rows.
    """

    magnitude: Tensor
    touched: Tensor

    def __init__(self, size: MemorySize, quantise: bool = True) -> None:
        super().__init__(size)
        self._quantise = quantise
        self.weight = nn.Parameter(torch.zeros(self.num_rows, size.head_width))
        for name in ("magnitude", "touched"):
            zeros = torch.zeros(len(size.primes), dtype=torch.int64)
            self.register_buffer(name, zeros, persistent=False)
        self._version = self.weight._version

    def forward(self, slots_BTH: Tensor) -> Tensor:
        """Gather and quantise rows; their gradient is sparse and passes straight through.

        Args:
            slots_BTH: (B, T, H) int64, a row of each head's own table.

        Returns:
            (B, T, H, W), in the dtype of the rows.

        Raises:
            NumericsError: The rows changed after the last `refresh`.
        """
        index = slots_BTH + self.offsets
        gathered = torch.nn.functional.embedding(index, self.weight, sparse=True)
        if not self._quantise:
            return gathered
        if self.weight._version != self._version:
            refuse_stale()
        return ternary_at(gathered, self.scale[:, None])

    @torch.no_grad()
    def write(self, index: Tensor, rows: Tensor) -> None:
        """Replace some rows; the scales follow at the next `refresh`, at the cost of these rows.

        Args:
            index: (U,) int64 rows, each once.
            rows: (U, W).
        """
        known = self.weight._version == self._version
        heads = torch.bucketize(index, self.offsets, right=True) - 1
        self._count(self.weight[index], heads, -1)
        self.weight.index_copy_(0, index, rows)
        self._count(rows, heads, 1)
        if known:
            self._version = self.weight._version

    @torch.no_grad()
    def refresh(self) -> None:
        """Make the scales those of the rows; reads all of them after changes other than `write`."""
        if self.weight._version != self._version:
            self._count_all()
            self._version = self.weight._version
        cells = (self.touched * self.size.head_width).clamp_min(1).double()
        mean = self.magnitude.double() / cells / _UNITS
        self.scale.copy_(mean.clamp_min(_FLOOR))

    @torch.no_grad()
    def packed(self) -> "PackedRows":
        """Return these rows as exported: signs and scales, on their device."""
        out = PackedRows(self.size).to(self.weight.device)
        out.scale.copy_(self.scale)
        signs = torch.empty(self.weight.numel(), dtype=torch.int8, device=self.weight.device)
        for first, last, head in self._chunks():
            part = self.weight[first:last] / self.scale[head]
            cells = slice(first * self.size.head_width, last * self.size.head_width)
            signs[cells] = part.round_().clamp_(-1, 1).flatten().to(torch.int8)
        out.trits.copy_(pack_trits(signs))
        return out

    def _count_all(self) -> None:
        self.magnitude.zero_()
        self.touched.zero_()
        for first, last, head in self._chunks():
            rows = self.weight[first:last]
            self._count(rows, torch.full((len(rows),), head, device=rows.device), 1)

    def _count(self, rows: Tensor, heads: Tensor, sign: int) -> None:
        units = rows.abs().mul_(_UNITS).round_().to(torch.int64).sum(1)
        self.magnitude.index_add_(0, heads, units, alpha=sign)
        self.touched.index_add_(0, heads, (units > 0).long(), alpha=sign)

    def _chunks(self) -> list[tuple[int, int, int]]:
        """Return (first row, one past the last, head) of chunks that lie in one head each."""
        first, chunks = 0, []
        for head, prime in enumerate(self.size.primes):
            end = first + prime
            starts = range(first, end, _CHUNK_ROWS)
            chunks += [(start, min(start + _CHUNK_ROWS, end), head) for start in starts]
            first = end
        return chunks


class PackedRows(_Rows):
    """Rows as exported: five signs a byte and a scale a head; nothing learns."""

    trits: Tensor
    signs: Tensor

    def __init__(self, size: MemorySize) -> None:
        super().__init__(size)
        trits = torch.zeros(packed_bytes(size.cells), dtype=torch.uint8)
        self.register_buffer("trits", trits, persistent=False)
        self.register_buffer("signs", trit_table(), persistent=False)

    def forward(self, slots_BTH: Tensor) -> Tensor:
        """Return what `LearnedRows` returns: (B, T, H, W) in the dtype of the scales."""
        width = self.size.head_width
        cell = (slots_BTH + self.offsets)[..., None] * width
        cell = cell + torch.arange(width, device=cell.device)
        byte = self.trits[cell // TRITS_PER_BYTE].long()
        signs = self.signs[byte, cell % TRITS_PER_BYTE]
        return signs.to(self.scale.dtype) * self.scale[:, None]

    def refresh(self) -> None:
        """Do nothing: these rows do not change."""
