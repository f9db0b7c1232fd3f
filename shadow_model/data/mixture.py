"""Which training shards are packed, how often and how much of each: the mixture of lanes by tokens.

The tokens in all stay what they are. A lane (or source) above its share gives the same part of each
of its shards, cut at a document's end; one below its share repeats whole shards in a seeded order.
Nothing is ever cut inside a document.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shadow_model.data.shards import iter_shard
from shadow_model.errors import ConfigError

_CHUNK_IDS = 1 << 19


class Entry(NamedTuple):
    """A shard as it is packed: name in ids_final/, file, and how many ids from its start."""

    name: str
    path: Path
    tokens: int


def mix(
    entries: Sequence[Entry], weights: Mapping[str, float], separator: int, seed: int
) -> list[Entry]:
    """Return the entries that bring each lane to its share, sorted by name.

    Args:
        entries: Training shards, whole, sorted by name.
        weights: "lane" or "lane/source" -> weight; the longer name wins; every lane needs one.
        separator: Row that ends a document.
        seed: Decides which shards are repeated once more than others.

    Raises:
        ConfigError: A weight names no lane or source, a lane has none, or all are 0.
    """
    groups = _group(entries, weights)
    total = sum(entry.tokens for entry in entries)
    scale = total / sum(weights[key] for key in groups)
    mixed: list[Entry] = []
    for key, members in sorted(groups.items()):
        mixed += _fit(
            members, round(weights[key] * scale), separator, [seed, zlib.crc32(key.encode())]
        )
    return sorted(mixed)


def _group(entries: Sequence[Entry], weights: Mapping[str, float]) -> dict[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    without = set[str]()
    for entry in entries:
        lane, source, _ = entry.name.split("/")
        key = next((k for k in (f"{lane}/{source}", lane) if k in weights), None)
        if key is None:
            without.add(f"{lane}/{source}")
        else:
            groups.setdefault(key, []).append(entry)
    unused = sorted(set(weights) - set(groups))
    if without or unused or not any(weights[key] for key in groups):
        found = f"no weight for {sorted(without)}, no shards for {unused}, weights {dict(weights)}"
        must = "give every lane or source that has training shards a weight, one above 0"
        raise ConfigError("pack.lane_weights", must, found, "Name exactly the lanes there are.")
    return groups


def _fit(entries: list[Entry], target: int, separator: int, seed: list[int]) -> list[Entry]:
    tokens = sum(entry.tokens for entry in entries)
    if target < tokens:
        return list(_cut(entries, target / tokens, separator))
    return [*entries, *_repeat(entries, target - tokens, np.random.default_rng(seed))]


def _cut(entries: Sequence[Entry], share: float, separator: int) -> Iterator[Entry]:
    """Yield a part of each shard; what whole documents leave over goes to the next shard."""
    budget = 0.0
    for entry in entries:
        budget += entry.tokens * share
        tokens = _document_end(entry, int(budget), separator)
        budget -= tokens
        if tokens:
            yield entry._replace(tokens=tokens)


def _document_end(entry: Entry, limit: int, separator: int) -> int:
    """Return the most ids, up to `limit`, that are whole documents from the shard's start."""
    if limit >= entry.tokens:
        return entry.tokens
    end, start = 0, 0
    for ids in iter_shard(entry.path, _CHUNK_IDS):
        ends = np.flatnonzero(ids[: limit - start] == separator)
        if len(ends):
            end = start + int(ends[-1]) + 1
        start += len(ids)
        if start >= limit:
            break
    return end


def _repeat(entries: list[Entry], missing: int, rng: np.random.Generator) -> Iterator[Entry]:
    """Yield whole shards, each pass in a new order, until one more would overshoot by more."""
    while True:
        for index in rng.permutation(len(entries)):
            entry = entries[index]
            if entry.tokens > 2 * missing:
                return
            missing -= entry.tokens
            yield entry
