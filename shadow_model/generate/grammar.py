"""Which rows may follow, so that every span is well formed: a start, its band's rows, its own end.

The readout already scores only the rows of one kind, markers and controls. Of these a document may
take: outside a span, language rows, controls, starts for which there is room, and the separator;
inside, codes of the band, and the end that belongs to the start once the codes fill a whole item.

Legend: V rows of a set.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from shadow_model.errors import DataError
from shadow_model.nn.readout import RowSet, row_sets
from shadow_model.table.layout import BANDS, GENERATE_END, KINDS, Kind, Layout


class SpanLimits(NamedTuple):
    """What codes make an item of a kind.

    Attributes:
        codes: Codes that the codec knows, the first of the band's.
        least: Codes of the shortest item.
        most: Codes of the longest item.
        step: Lengths between are `least` and multiples of this more.
    """

    codes: int
    least: int
    most: int
    step: int


class State(NamedTuple):
    """Where a document stands.

    Attributes:
        kind: Index into KINDS of the span under way, 0 outside.
        end: Row that ends the span.
        length: Codes of the span so far.
    """

    kind: int = 0
    end: int = -1
    length: int = 0


OUTSIDE = State()


class Choice(NamedTuple):
    """What may follow: local places in a kind's row set."""

    kind: int
    allowed: Tensor


class Grammar:
    """The rules of one layout.

    Args:
        layout: Of the table.
        limits: Of the kinds that can be decoded; other kinds are never begun.
        starts: Whether spans may begin on their own.
    """

    def __init__(
        self, layout: Layout, limits: Mapping[Kind, SpanLimits], starts: bool = True
    ) -> None:
        self._layout, self._starts = layout, starts
        self._limits = {KINDS.index(kind): limit for kind, limit in limits.items()}
        self._sets = row_sets(layout)
        self._separator = layout.marks["sep"]
        self._opens = {
            row: State(BANDS.index(band) + 1, self._end_of(row, band))
            for row, band in layout.start_rows.items()
        }
        self._choose = lru_cache(maxsize=64)(self._make_choice)

    @property
    def separator(self) -> int:
        """The row that ends a document."""
        return self._separator

    def after(self, rows: Iterable[int], state: State = OUTSIDE) -> State:
        """Return where a document stands after some rows.

        Raises:
            DataError: The rows break a span.
        """
        for row in rows:
            state = self.advance(state, row)
        return state

    def advance(self, state: State, row: int) -> State:
        """Return where a document stands after one more row.

        Raises:
            DataError: The row cannot stand there.
        """
        if not state.kind:
            if row in self._layout.end_rows or self._band_of(row):
                raise _misplaced(row, "follow the start of its span")
            return self._opens.get(row, state)
        if row == state.end:
            return State()
        if self._band_of(row) != state.kind:
            raise _misplaced(row, f"be a code or the end of a {KINDS[state.kind]}")
        return state._replace(length=state.length + 1)

    def choice(self, state: State, remaining: int) -> Choice:
        """Return what may follow.

        Args:
            state: Where the document stands.
            remaining: Rows that it may still take, the next among them.

        Raises:
            DataError: The span under way does not fit into them.
        """
        if not state.kind:
            fitting = [k for k, limit in self._limits.items() if remaining > limit.least + 1]
            return self._choose(0, tuple(fitting) if self._starts else (), -1, True)
        limit = self._limits.get(state.kind)
        if limit is None or self._missing(state, limit) + 1 > remaining:
            must = f"leave room for a whole {KINDS[state.kind]}"
            raise DataError("rows to generate", must, remaining, "Allow more rows.")
        may_end = self._missing(state, limit) == 0 and state.length > 0
        longer = state.length + (limit.step if may_end else 1)
        may_go_on = (
            longer <= limit.most
            and self._missing(state._replace(length=state.length + 1), limit) + 2 <= remaining
        )
        return self._choose(state.kind, (), state.end if may_end else -1, may_go_on)

    def _make_choice(self, kind: int, opens: tuple[int, ...], end: int, codes: bool) -> Choice:
        rows = self._sets[kind]
        allowed = torch.zeros(rows.size + rows.num_rows - rows.tail, dtype=torch.bool)
        if kind:
            allowed[: self._limits[kind].codes] = codes
            if end >= 0:
                allowed[_place(rows, end)] = True
            return Choice(kind, allowed)
        allowed[:] = True
        for row in self._layout.end_rows:
            allowed[_place(rows, row)] = False
        for row, state in self._opens.items():
            allowed[_place(rows, row)] = state.kind in opens
        return Choice(kind, allowed)

    @staticmethod
    def _missing(state: State, limit: SpanLimits) -> int:
        """Return how many codes an item of this length lacks to be whole."""
        if state.length < limit.least:
            return limit.least - state.length
        return -(state.length - limit.least) % limit.step

    def _end_of(self, start: int, band: str) -> int:
        marked = start == self._layout.marks[band]
        return self._layout.control(f"[/{band}]" if marked else GENERATE_END)

    def _band_of(self, row: int) -> int:
        for kind, rows in enumerate(self._sets[1:], 1):
            if rows.first <= row < rows.first + rows.size:
                return kind
        return 0


def _place(rows: RowSet, row: int) -> int:
    return int(rows.local(torch.tensor(row)))


def _misplaced(row: int, must: str) -> DataError:
    return DataError("row of a document", must, f"row {row}", "Correct the prompt.")
