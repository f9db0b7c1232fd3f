"""Figures of a receipt as tables, whatever a stage chose to measure.

Mappings of one shape that stand side by side (tokens by kind and split, say), and lists of such
mappings (checks, shapes), become a grid; all else becomes name and value. Values stay numbers
until the page writes them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shadow_model.report import words


@dataclass(frozen=True)
class Grid:
    """A table with a heading a column.

    Attributes:
        name: Dotted name of the figures it holds.
        columns: Names of the columns; the first is "" where rows have names of their own.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Figures:
    """The figures of one stage: single ones, and grids."""

    pairs: tuple[tuple[str, Any], ...]
    grids: tuple[Grid, ...]


def arrange(figures: Mapping[str, Any], without: Sequence[str] = ()) -> Figures:
    """Split figures into single ones and grids.

    Args:
        figures: Nested mappings and lists of plain values.
        without: Names at the top that are left out.
    """
    pairs: list[tuple[str, Any]] = []
    grids: list[Grid] = []
    _arrange({k: v for k, v in figures.items() if k not in without}, "", pairs, grids)
    return Figures(tuple(pairs), tuple(grids))


def _arrange(
    figures: Mapping[str, Any], prefix: str, pairs: list[tuple[str, Any]], grids: list[Grid]
) -> None:
    for name, value in figures.items():
        grid = _grid(f"{prefix}{name}", value)
        if grid:
            grids.append(grid)
        elif isinstance(value, Mapping):
            _arrange(value, f"{prefix}{name}.", pairs, grids)
        else:
            pairs.append((f"{prefix}{name}", value))


def _grid(name: str, value: Any) -> Grid | None:
    if isinstance(value, Mapping) and _alike(list(value.values())):
        columns = _columns(list(value.values()))
        rows = [(row, *(inner.get(c) for c in columns)) for row, inner in value.items()]
        return Grid(name, ("", *columns), tuple(rows))
    if isinstance(value, list | tuple) and _alike(value):
        columns = _columns(value)
        return Grid(name, columns, tuple(tuple(row.get(c) for c in columns) for row in value))
    return None


def _alike(values: Sequence[Any]) -> bool:
    """Whether all are flat mappings with a name in common."""
    if not values or not all(isinstance(v, Mapping) and v for v in values):
        return False
    flat = all(not isinstance(x, Mapping) for v in values for x in v.values())
    shared = set.intersection(*(set(v) for v in values))
    return flat and bool(shared)


def _columns(values: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(name) for value in values for name in value))


def cell(column: str, value: Any) -> str:
    """Write a grid's value by the unit that its column's name ends in."""
    return words.figure(column, value)
