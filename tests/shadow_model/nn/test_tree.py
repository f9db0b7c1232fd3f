"""Trees keep their shape, their order and their types."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch

from shadow_model.nn.tree import detach, select_rows, tree_bytes, tree_leaves, tree_map


class _Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class _Record:
    tensor: torch.Tensor
    count: int


def _tree() -> dict[str, Any]:
    one = torch.ones(2, 3, requires_grad=True)
    return {"a": _Pair(one, None), "b": [_Record(one * 2, 7), (one * 3,)]}


def test_map_keeps_shape_and_types() -> None:
    doubled = tree_map(lambda leaf: leaf * 2, _tree())
    assert isinstance(doubled["a"], _Pair)
    assert doubled["a"].right is None
    assert isinstance(doubled["b"], list)
    assert doubled["b"][0].count == 7
    assert [float(leaf.detach().mean()) for leaf in tree_leaves(doubled)] == [2.0, 4.0, 6.0]


def test_detach_cuts_every_leaf() -> None:
    assert not any(leaf.requires_grad for leaf in tree_leaves(detach(_tree())))


def test_bytes_count_a_shared_storage_once() -> None:
    whole = torch.zeros(4, 8)
    assert tree_bytes({"whole": whole, "view": whole[1:]}) == 4 * 8 * 4
    assert tree_bytes(None) == 0


def test_rows_are_selected_on_the_first_axis() -> None:
    rows = select_rows({"x": torch.arange(6).view(3, 2)}, torch.tensor([True, False, True]))
    assert rows["x"].tolist() == [[0, 1], [4, 5]]


def test_a_foreign_leaf_is_refused() -> None:
    with pytest.raises(TypeError, match="tensors, ints and None, and not str"):
        tree_map(lambda leaf: leaf, {"name": "x"})
