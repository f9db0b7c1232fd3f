"""Which document lies in which shard, decided before anything is fitted.

A shard's name alone says whether it is held out, so planning shards is planning the split. Text and
the user's files are cut into shards in their order, so that neighbours stay together. Embedded
items are dealt: each shard gets its share of every kind, and a group that shows one thing stays
whole.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from shadow_model.data.inputs import SourceInput
from shadow_model.data.items import ItemRef
from shadow_model.data.shards import final_name, is_held_out
from shadow_model.errors import DataError
from shadow_model.table.layout import KINDS, Kind

BYTES_PER_TOKEN = 3.4
"""Of English text in some thousand pieces; only the size of shards depends on it."""


class ShardPlan(NamedTuple):
    """One shard to be written."""

    name: str
    """Its path below ids/."""
    kinds: frozenset[Kind]
    documents: int = 0
    """How many documents of text it takes from its input's stream."""
    items: Sequence[ItemRef] = ()
    file: Path | None = None
    """Ready ids to link."""

    def held_out(self, val_every: int) -> bool:
        """Tell whether the shard is held out."""
        return is_held_out(final_name(self.name), val_every)


def shard_name(source: SourceInput, index: int) -> str:
    """Return the path of an input's shard below ids/."""
    return f"{source.lane}/{source.name}/part_{index:05d}.npz"


def place_texts(
    texts: Iterable[str], source: SourceInput, shard_tokens: int
) -> Iterator[tuple[str, str]]:
    """Yield (name of its shard, document) for a stream of documents cut into shards."""
    index, size = 0, 0
    for text in texts:
        yield shard_name(source, index), text
        size += len(text.encode())
        if size >= shard_tokens * BYTES_PER_TOKEN:
            index, size = index + 1, 0


def plan_items(
    items: Sequence[ItemRef], source: SourceInput, shard_tokens: int, val_every: int
) -> list[ShardPlan]:
    """Return the shards of an input of media items."""
    total = sum(2 * item.tokens for item in items)
    count = max(1, -(-total // shard_tokens))
    if source.kind == "demo_media":
        names = [shard_name(source, i) for i in range(count)]
        held_out = [is_held_out(name, val_every) for name in names]
        shards = deal_items(items, held_out)
    else:
        size = -(-len(items) // count)
        shards = [list(items[i : i + size]) for i in range(0, len(items), size)]
    return [
        ShardPlan(
            shard_name(source, i), frozenset({"text", *(item.kind for item in shard)}), items=shard
        )
        for i, shard in enumerate(shards)
        if shard
    ]


def deal_items(items: Sequence[ItemRef], held_out: Sequence[bool]) -> list[list[ItemRef]]:
    """Deal items to shards, group by group.

    A group, those of the rarest kind and the largest first, goes to the shard that has the fewest
    tokens of its kind. Among equals, training and held-out shards take turns, so that a kind with
    few groups is on both sides.

    Args:
        items: All items of one input.
        held_out: Of each shard, whether it is held out.

    Returns:
        The items of each shard, in their original order; some may be empty.
    """
    order = _turns(held_out)
    filled = [Counter[Kind]() for _ in held_out]
    home: dict[str, int] = {}
    for group, kind, tokens in _groups(items):
        home[group] = min(order, key=lambda i: (filled[i][kind], filled[i].total()))
        filled[home[group]].update(tokens)
    shards: list[list[ItemRef]] = [[] for _ in held_out]
    for item in items:
        shards[home[item.group]].append(item)
    return shards


def check_split(shards: Collection[ShardPlan], val_every: int) -> None:
    """Refuse a split that leaves a kind out of training or out of what is held out.

    Raises:
        DataError: It does; says for which kinds, and what `val_every` would do.
    """
    lacking = _lacking(shards, val_every)
    if not lacking:
        return
    good = next(
        (n for n in range(min(val_every, 1000) - 1, 1, -1) if not _lacking(shards, n)), None
    )
    advice = f"Set val_every = {good}" if good else "Make shards smaller (shard_tokens)"
    held = sum(shard.held_out(val_every) for shard in shards)
    raise DataError(
        f"val_every = {val_every}",
        "put every kind into training and held-out shards",
        f"{held} of {len(shards)} shards held out, and {', '.join(lacking)}",
        f"{advice}, or add data.",
    )


def _lacking(shards: Collection[ShardPlan], val_every: int) -> list[str]:
    train = {k for shard in shards if not shard.held_out(val_every) for k in shard.kinds}
    val = {k for shard in shards if shard.held_out(val_every) for k in shard.kinds}
    return [f"no {k} held out" for k in KINDS if k in train - val] + [
        f"no {k} in training" for k in KINDS if k in val - train
    ]


def _groups(items: Iterable[ItemRef]) -> list[tuple[str, Kind, Counter[Kind]]]:
    """Return (group, its rarest kind, its tokens by kind), in the order of dealing."""
    by_group: dict[str, Counter[Kind]] = defaultdict(Counter)
    total: Counter[Kind] = Counter()
    for item in items:
        by_group[item.group][item.kind] += item.tokens
        total[item.kind] += item.tokens
    found = [
        (group, min(tokens, key=lambda kind: (total[kind], kind)), tokens)
        for group, tokens in by_group.items()
    ]
    return sorted(found, key=lambda g: (total[g[1]], g[1], -g[2][g[1]], g[0]))


def _turns(held_out: Sequence[bool]) -> list[int]:
    train = [i for i, held in enumerate(held_out) if not held]
    val = [i for i, held in enumerate(held_out) if held]
    turns = [i for pair in zip(train, val, strict=False) for i in pair]
    return turns + train[len(val) :] + val[len(train) :]
