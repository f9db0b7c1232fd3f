"""What is learnt from training shards before anything is coded: pieces and codecs."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from shadow_model.data.id_layout import IdLayout
from shadow_model.data.inputs import SourcesConfig
from shadow_model.data.items import ItemRef, read_sample
from shadow_model.data.media import MEDIA_KINDS, MediaCodec, MediaKind, fit_codec, load_codecs
from shadow_model.data.plan import ShardPlan
from shadow_model.data.ready_ids import ReadyLayout
from shadow_model.data.text import Pieces
from shadow_model.data.text_sample import TextSample


def choose_pieces(
    config: SourcesConfig, given: ReadyLayout | None, sample: TextSample
) -> Pieces | None:
    """Return the tokenizer of ready ids, else the one that the config names, else a learnt one.

    None where ready ids are all there is and they come without a tokenizer.

    Raises:
        DataError: The tokenizer's file is none, or there is no text to learn from.
    """
    if given is not None:
        if given.layout is None or given.layout.pieces is None:
            return None
        return Pieces.load(given.folder / given.layout.pieces)
    if config.pieces is not None:
        return Pieces.load(config.pieces.expanduser())
    return Pieces.train(sample.texts(), config.num_pieces)


def save_layout(ids: Path, given: ReadyLayout | None, pieces: Pieces | None) -> IdLayout | None:
    """Write `layout.json` and the tokenizer beside the shards; returns what was written."""
    if given is not None:
        layout = given.layout
    else:
        assert pieces is not None, "only ready ids come without pieces"
        layout = IdLayout.dense(pieces.size, f"pieces{pieces.suffix}")
    if layout is not None:
        layout.save(ids)
        if pieces is not None and layout.pieces is not None:
            pieces.save(ids / layout.pieces)
    return layout


def choose_codecs(
    shards: Iterable[ShardPlan], config: SourcesConfig
) -> dict[MediaKind, MediaCodec]:
    """Return a codec for every kind at hand: of the folder that the config names, else fitted.

    Raises:
        DataError: A saved codec is damaged, or there are too few items to fit one.
    """
    ready = load_codecs(config.codecs.expanduser()) if config.codecs is not None else {}
    training = items_by_kind([s for s in shards if not s.held_out(config.val_every)])
    fitted = {
        kind: _fit(kind, items, config) for kind, items in training.items() if kind not in ready
    }
    return {kind: {**ready, **fitted}[kind] for kind in MEDIA_KINDS if kind in {**ready, **fitted}}


def items_by_kind(shards: Iterable[ShardPlan]) -> dict[MediaKind, list[ItemRef]]:
    """Return the items of shards by kind; kinds without items are left out."""
    items = [item for shard in shards for item in shard.items]
    found = {kind: [item for item in items if item.kind == kind] for kind in MEDIA_KINDS}
    return {kind: of_kind for kind, of_kind in found.items() if of_kind}


def _fit(kind: MediaKind, items: Sequence[ItemRef], config: SourcesConfig) -> MediaCodec:
    limits = {
        "picture": config.media.picture.fit_items,
        "sound": config.media.sound.fit_items,
        "clip": config.media.clip.fit_items,
    }
    return fit_codec(
        kind, read_sample(items, config.media, limits[kind]), config.media, config.seed
    )
