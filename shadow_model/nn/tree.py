"""Trees of tensors: what a model carries from chunk to chunk.

A tree is a tensor, an int, None, or a dict, tuple, named tuple, list or dataclass of trees. torch
has no public functions for them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from torch import Tensor


def tree_map(fn: Callable[[Tensor], Any], tree: Any) -> Any:
    """Return a tree of the same shape, with `fn` of each tensor.

    Raises:
        TypeError: A leaf is neither a tensor nor an int nor None.
    """
    if isinstance(tree, Tensor):
        return fn(tree)
    if tree is None or isinstance(tree, int):
        return tree
    if isinstance(tree, Mapping):
        return {key: tree_map(fn, branch) for key, branch in tree.items()}
    if isinstance(tree, tuple | list):
        branches = [tree_map(fn, branch) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else type(tree)(branches)
    if is_dataclass(tree) and not isinstance(tree, type):
        named = {field.name: tree_map(fn, getattr(tree, field.name)) for field in fields(tree)}
        return replace(tree, **named)
    raise TypeError(f"a tree holds tensors, ints and None, and not {type(tree).__name__}")


def tree_leaves(tree: Any) -> Iterator[Tensor]:
    """Yield the tensors of a tree, in its order."""
    leaves: list[Tensor] = []
    tree_map(leaves.append, tree)
    yield from leaves


def detach(tree: Any) -> Any:
    """Return a tree cut off from the graph of what made it."""
    return tree_map(Tensor.detach, tree)


def tree_bytes(tree: Any) -> int:
    """Return the bytes of a tree's tensors; a storage that two share counts once."""
    storages = {
        leaf.untyped_storage().data_ptr(): leaf.untyped_storage() for leaf in tree_leaves(tree)
    }
    return sum(storage.nbytes() for storage in storages.values())


def select_rows(tree: Any, mask_B: Tensor) -> Any:
    """Return a tree with the rows of `mask_B` alone: (B,) bool, along each tensor's first axis."""
    return tree_map(lambda leaf: leaf[mask_B], tree)
