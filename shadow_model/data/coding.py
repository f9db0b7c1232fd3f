"""Documents become old ids, shard by shard, in the memory of one shard."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shadow_model.data.id_layout import FILE_NAME, IdLayout
from shadow_model.data.inputs import SourceInput
from shadow_model.data.items import ItemRef, read_item
from shadow_model.data.media import MediaCodec, MediaConfig, MediaKind
from shadow_model.data.plan import ShardPlan
from shadow_model.data.shards import write_shard
from shadow_model.data.spans import SpanIds, count_kinds, generate, separated, understand
from shadow_model.data.text import Pieces
from shadow_model.errors import DataError
from shadow_model.table.layout import Kind


class ShardFigures(NamedTuple):
    """What was written into one shard."""

    name: str
    tokens: Counter[Kind]
    documents: int = 0
    """Documents coded; 0 for ready ids."""
    text_bytes: int = 0
    """UTF-8 bytes of its texts, captions included (each stands twice); 0 for ready ids."""


class Coder:
    """Everything that turns raw material into ids.

    Args:
        pieces: The tokenizer.
        codecs: The fitted codecs of the kinds at hand.
        media: How items are read.
        layout: Where the ids lie.
        where: The layout's file, for messages.

    Raises:
        DataError: The layout has no place for what is to be coded.
    """

    def __init__(
        self,
        pieces: Pieces,
        codecs: Mapping[MediaKind, MediaCodec],
        media: MediaConfig,
        layout: IdLayout,
        where: object,
    ) -> None:
        self.pieces, self.codecs, self.media, self.layout = pieces, codecs, media, layout
        fix = f"Correct {FILE_NAME}."
        if "sep" not in layout.marks:
            raise DataError(where, "place the mark sep", f"the marks {[*layout.marks]}", fix)
        if pieces.size > layout.vocab:
            raise DataError(where, f"have vocab >= {pieces.size} pieces", layout.vocab, fix)
        self._sep = layout.marks["sep"]
        self._spans = {kind: SpanIds.of(layout, kind, where) for kind in codecs}
        for kind, ids in self._spans.items():
            codes = len(codecs[kind].codebook)
            if codes > ids.num_codes:
                raise DataError(where, f"have {codes} codes for a {kind}", ids.num_codes, fix)

    def code_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Return documents as one stream of ids: (N,) int64."""
        return separated(self.pieces.encode_many(texts), self._sep)

    def code_items(self, items: Sequence[ItemRef]) -> tuple[np.ndarray, int]:
        """Return (the ids of all items in both orders: (N,) int64, the number of documents).

        All of the one order come before all of the other: were an item's two documents neighbours,
        the second could be copied from the first.
        """
        captions = self.pieces.encode_many([item.caption for item in items])
        first, second = [], []
        for item, caption in zip(items, captions, strict=True):
            ids = self._spans[item.kind]
            for array in read_item(item, self.media):
                codes = self.codecs[item.kind].encode(array)
                first.append(understand(ids, codes, caption))
                second.append(generate(ids, codes, caption))
        return separated(first + second, self._sep), len(first) + len(second)


def write_text_shards(
    texts: Iterator[str], source: SourceInput, plans: Sequence[ShardPlan], coder: Coder, ids: Path
) -> Iterator[ShardFigures]:
    """Write the shards of an input of text; yields the figures of each.

    Raises:
        DataError: The input no longer has the documents that were planned.
    """
    for plan in plans:
        documents = list(islice(texts, plan.documents))
        _check_same(source, plan.documents, len(documents))
        stream = coder.code_texts(documents)
        write_shard(ids / plan.name, stream)
        size = sum(len(text.encode()) for text in documents)
        yield ShardFigures(plan.name, _count(stream, coder.layout), len(documents), size)
    _check_same(source, 0, sum(1 for _ in texts))


def write_item_shard(plan: ShardPlan, coder: Coder, ids: Path) -> ShardFigures:
    """Write one shard of media items.

    Raises:
        DataError: A file cannot be read.
    """
    stream, documents = coder.code_items(plan.items)
    write_shard(ids / plan.name, stream)
    size = sum(2 * len(item.caption.encode()) for item in plan.items)
    return ShardFigures(plan.name, _count(stream, coder.layout), documents, size)


def _count(ids: np.ndarray, layout: IdLayout) -> Counter[Kind]:
    return Counter(count_kinds(ids, layout))


def _check_same(source: SourceInput, planned: int, found: int) -> None:
    if planned != found:
        must = "not change while it is read"
        found_text = f"{found} documents where {planned} were planned"
        raise DataError(source.path or source.name, must, found_text, "Run again.")
