"""Each input's shards, planned one input after the other, and a sample of what is in training."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from shadow_model.data.coding import ShardFigures
from shadow_model.data.documents import TextFilter
from shadow_model.data.inputs import SourceInput, SourcesConfig
from shadow_model.data.items import list_items
from shadow_model.data.plan import ShardPlan, place_texts, plan_items
from shadow_model.data.ready_ids import ReadyLayout, count_ready, link_shards, ready_shards
from shadow_model.data.shards import is_held_out
from shadow_model.data.text_sample import TextSample
from shadow_model.progress import Progress
from shadow_model.table.layout import KINDS


class InputPlan(NamedTuple):
    """The shards of one input."""

    source: SourceInput
    shards: Sequence[ShardPlan]
    texts: TextFilter | None = None
    """The documents of an input of text; its counts are those of the last time it was read."""
    ready: Sequence[ShardFigures] = ()
    """What is known of ready ids, which are linked into their place while planning."""


def plan_inputs(
    config: SourcesConfig,
    given: ReadyLayout | None,
    sample: TextSample,
    ids: Path,
    progress: Progress,
) -> Iterator[InputPlan]:
    """Yield the plan of each input; texts and captions of training shards go into the sample.

    Raises:
        DataError: An input is empty or cannot be read.
        ConfigError: A package of the embedded data is not installed.
    """
    for number, source in enumerate(config.inputs):
        progress(number, len(config.inputs), f"planning {source.lane}/{source.name}")
        if source.kind == "ids":
            yield _plan_ready(source, given, ids)
        elif source.is_text:
            yield _plan_texts(source, config, sample)
        else:
            yield _plan_items(source, config, sample)


def _plan_texts(source: SourceInput, config: SourcesConfig, sample: TextSample) -> InputPlan:
    texts = TextFilter(source, config.deduplicate)
    documents: Counter[str] = Counter()
    for name, text in place_texts(texts, source, config.shard_size(source)):
        documents[name] += 1
        if not is_held_out(name, config.val_every):
            sample.add(text)
    kinds = frozenset({KINDS[0]})
    shards = [ShardPlan(name, kinds, documents=count) for name, count in documents.items()]
    return InputPlan(source, shards, texts)


def _plan_items(source: SourceInput, config: SourcesConfig, sample: TextSample) -> InputPlan:
    items = list_items(source, config.media)
    shards = plan_items(items, source, config.shard_size(source), config.val_every)
    training = [shard for shard in shards if not shard.held_out(config.val_every)]
    for caption in dict.fromkeys(item.caption for shard in training for item in shard.items):
        sample.add(caption)
    return InputPlan(source, shards)


def _plan_ready(source: SourceInput, given: ReadyLayout | None, ids: Path) -> InputPlan:
    ready = ready_shards(source)
    layout = given.layout if given else None
    figures = [ShardFigures(shard.name, count_ready(shard, layout)) for shard in ready]
    link_shards(ready, ids)
    shards = [ShardPlan(f.name, frozenset(k for k in KINDS if f.tokens[k])) for f in figures]
    return InputPlan(source, shards, ready=figures)
