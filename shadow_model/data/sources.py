"""Stage 0: raw material of every kind becomes shards of old ids.

The order keeps the held-out data unseen: first the shards are planned, which is the split; then
pieces and codecs are fitted on what lies in training shards; then everything is coded.

    ids/<lane>/<source>/part_*    the shards; ids/layout.json and ids/pieces.* say what an id is
    codecs/                       the fitted codecs
    preview/                      held-out items beside what their codes give back
"""

import importlib.metadata
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from shadow_model.data.coding import Coder, ShardFigures, write_item_shard, write_text_shards
from shadow_model.data.fitting import choose_codecs, choose_pieces, items_by_kind, save_layout
from shadow_model.data.id_layout import FILE_NAME, IdLayout
from shadow_model.data.input_plan import InputPlan, plan_inputs
from shadow_model.data.inputs import SourceInput, SourcesConfig
from shadow_model.data.media import MediaCodec, MediaKind
from shadow_model.data.plan import check_split
from shadow_model.data.previews import write_previews
from shadow_model.data.raw import embedded_packages, list_raw
from shadow_model.data.ready_ids import ReadyLayout, ready_layout
from shadow_model.data.shards import final_name, is_held_out
from shadow_model.data.text import Pieces
from shadow_model.data.text_sample import TextSample
from shadow_model.data.writing import require_space
from shadow_model.progress import Progress, silent
from shadow_model.table.layout import KINDS

__all__ = ["SourceInput", "SourcesConfig", "build_sources", "list_raw"]


def build_sources(out: Path, config: SourcesConfig, progress: Progress = silent) -> dict[str, Any]:
    """Plan, fit, code and write everything below `out`.

    Args:
        out: An empty folder.
        config: The inputs and how they become shards.
        progress: Told of inputs planned, then of shards written.

    Returns:
        Figures: documents, bytes, shards and tokens by lane and source, tokens by split and kind;
        what was left out; pieces; the codecs' quality on held-out items; seconds by step; the
        versions of embedded packages.

    Raises:
        DataError: An input cannot be read, or a kind would be on one side of the split only.
        ConfigError: A package of the embedded data is not installed.
    """
    # one thread: the order of sums, and so codes, must not depend on the machine's cores
    with threadpool_limits(limits=1):
        return _build(out, config, progress)


def _build(out: Path, config: SourcesConfig, progress: Progress) -> dict[str, Any]:
    ids, seconds = out / "ids", dict[str, float]()
    ids.mkdir(parents=True, exist_ok=True)
    given = ready_layout(config)
    sample = TextSample(config.piece_sample_bytes)
    with _timed(seconds, "plan"):
        plans = [*plan_inputs(config, given, sample, ids, progress)]
        shards = [shard for plan in plans for shard in plan.shards]
        check_split(shards, config.val_every)
        require_space(out, sum(map(_size, plans)))
    with _timed(seconds, "codecs"):
        codecs = choose_codecs(shards, config)
        for codec in codecs.values():
            codec.save(out / "codecs")
    with _timed(seconds, "pieces"):
        pieces = choose_pieces(config, given, sample)
        layout = save_layout(ids, given, pieces)
        coder = _coder(config, given, pieces, layout, _used(codecs, plans))
    with _timed(seconds, "code"):
        figures = [*_write(plans, coder, ids, progress)]
    with _timed(seconds, "quality"):
        held_out = items_by_kind(s for s in shards if s.held_out(config.val_every))
        quality = write_previews(out / "preview", codecs, held_out, config)
    return {
        **_totals(figures, config.val_every),
        **_texts_left_out(plans),
        "pieces": coder.pieces.size if coder else None,
        "codecs": quality,
        "seconds": seconds,
        "packages": {p: importlib.metadata.version(p) for p in embedded_packages(config)},
    }


def _coder(
    config: SourcesConfig,
    given: ReadyLayout | None,
    pieces: Pieces | None,
    layout: IdLayout | None,
    codecs: Mapping[MediaKind, MediaCodec],
) -> Coder | None:
    """Return what codes the inputs; None where all of them are ready ids."""
    if pieces is None or layout is None or all(s.kind == "ids" for s in config.inputs):
        return None
    where = given.folder / FILE_NAME if given else FILE_NAME
    return Coder(pieces, codecs, config.media, layout, where)


def _used(
    codecs: Mapping[MediaKind, MediaCodec], plans: Sequence[InputPlan]
) -> dict[MediaKind, MediaCodec]:
    items = items_by_kind(shard for plan in plans for shard in plan.shards)
    return {kind: codec for kind, codec in codecs.items() if kind in items}


def _size(plan: InputPlan) -> int:
    """Return about how many bytes an input's shards will take: no text has two bytes a token."""
    tokens = sum(3 * item.tokens for shard in plan.shards for item in shard.items)
    return 4 * (tokens + (plan.texts.bytes // 2 if plan.texts else 0))


def _write(
    plans: Sequence[InputPlan], coder: Coder | None, ids: Path, progress: Progress
) -> Iterator[ShardFigures]:
    total, done = sum(len(plan.shards) for plan in plans), 0
    for plan in plans:
        for figures in _written(plan, coder, ids):
            done += 1
            progress(done, total, "shards written")
            yield figures


def _written(plan: InputPlan, coder: Coder | None, ids: Path) -> Iterator[ShardFigures]:
    if plan.ready:
        yield from plan.ready
        return
    assert coder is not None, "inputs that are not ready ids are coded"
    if plan.texts is not None:
        yield from write_text_shards(iter(plan.texts), plan.source, plan.shards, coder, ids)
    else:
        for shard in plan.shards:
            yield write_item_shard(shard, coder, ids)


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    seconds[step] = round(time.monotonic() - started, 2)


def _totals(figures: Sequence[ShardFigures], val_every: int) -> dict[str, Any]:
    """Sum shards by lane and source, and tokens by split and kind."""
    sources: dict[str, Counter[str]] = {}
    tokens: dict[str, Counter[str]] = {"train": Counter(), "val": Counter()}
    for figure in figures:
        split = "val" if is_held_out(final_name(figure.name), val_every) else "train"
        tokens[split].update(figure.tokens)
        place = sources.setdefault(figure.name.rpartition("/")[0], Counter())
        place.update({f"{split}_shards": 1, f"{split}_tokens": figure.tokens.total()})
        place.update({f"{kind}_tokens": figure.tokens[kind] for kind in KINDS})
        place.update({"documents": figure.documents, "text_bytes": figure.text_bytes})
    return {
        "shards": len(figures),
        "tokens": {split: {kind: of[kind] for kind in KINDS} for split, of in tokens.items()},
        "sources": {place: _with_rate(dict(counts)) for place, counts in sources.items()},
    }


def _with_rate(counts: dict[str, int]) -> dict[str, float]:
    """Return a source's counts, with bytes a token where it is text alone."""
    media = sum(counts[f"{kind}_tokens"] for kind in KINDS[1:])
    if media or not counts["text_bytes"]:
        return dict(counts)
    return {**counts, "bytes_per_token": round(counts["text_bytes"] / counts["text_tokens"], 3)}


def _texts_left_out(plans: Sequence[InputPlan]) -> dict[str, int]:
    texts = [plan.texts for plan in plans if plan.texts is not None]
    return {
        "empty": sum(text.empty for text in texts),
        "duplicates": sum(text.duplicates for text in texts),
    }
