"""Stage 1: the sources stage's folder -> table.npz, with codecs and tokenizer beside it.

Reading shards is the data layer's, making rows the table layer's, which must not know the former:
so counts and texts are gathered here, from training shards only, and handed down.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from shadow_model.data.id_layout import IdLayout
from shadow_model.data.media import load_codecs
from shadow_model.data.shards import count_ids, final_name, is_held_out, iter_shard, list_shards
from shadow_model.data.text import Pieces
from shadow_model.errors import DataError
from shadow_model.progress import Progress, silent
from shadow_model.table.build import make_table
from shadow_model.table.config import TableConfig
from shadow_model.table.inputs import TableInputs
from shadow_model.table.layout import BANDS, KINDS
from shadow_model.table.vectors import read_vectors

_MAX_UNSTATED_IDS = 1 << 24
_CHUNK_IDS = 1 << 18


def build_table(
    sources: Path,
    out: Path,
    config: TableConfig,
    val_every: int,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Build the table of a sources folder.

    Args:
        sources: Holds ids/, with its layout.json where ids are more than text, and codecs/.
        out: Folder to write table.npz, the tokenizer and codecs/ into.
        config: How rows and bias are made.
        val_every: The held-out split's; counts and word vectors come from the other shards.
        progress: Told of ids counted, bits rotated and close pairs left.

    Returns:
        The figures that the receipt states.

    Raises:
        DataError: Shards, layout, tokenizer, vectors, codebooks or ratings that cannot be used.
        ConfigError: `num_lang` leaves no place for the byte pieces.
        LayoutError: Rows of a packed table are equal.
    """
    ids = sources / "ids"
    layout = IdLayout.load(ids)
    names = [n for n in list_shards(ids) if not is_held_out(final_name(n), val_every)]
    if not names:
        found = f"all of them held out at val_every {val_every}"
        raise DataError(ids, "hold training shards", found, "Raise val_every, or add shards.")
    inputs = _inputs(sources, layout, [ids / name for name in names], config, progress)
    # one thread: the order of sums, and so a bit at its threshold, must not depend on the cores
    with threadpool_limits(limits=1):
        made = make_table(inputs, config, progress)
    out.mkdir(parents=True, exist_ok=True)
    made.table.save(out / "table.npz")
    if layout is not None and layout.pieces is not None:
        tokenizer = ids / layout.pieces
        shutil.copyfile(tokenizer, out / f"pieces{tokenizer.suffix}")
    if (sources / "codecs").is_dir():
        shutil.copytree(sources / "codecs", out / "codecs", dirs_exist_ok=True)
    return {**made.figures, "training_shards": len(names)}


def _inputs(
    sources: Path,
    layout: IdLayout | None,
    shards: list[Path],
    config: TableConfig,
    progress: Progress,
) -> TableInputs:
    counts = _count_ids(shards, layout.num_ids if layout else _MAX_UNSTATED_IDS, progress)
    codebooks = _codebooks(
        sources / "codecs", {str(b): path for b, path in config.codebooks.items()}
    )
    if layout is None:
        return TableInputs(counts, None, lambda: (), codebooks=codebooks)
    pieces = Pieces.load(sources / "ids" / layout.pieces) if layout.pieces else None
    num_text = int(counts[: layout.vocab].sum())
    share = min(1.0, config.corpus_tokens / max(1, num_text))

    def texts() -> Iterable[str]:
        return () if pieces is None else _texts(shards, pieces, layout.vocab, share)

    return TableInputs(
        counts=counts,
        vocab=layout.vocab,
        texts=texts,
        bands={str(band): place for band, place in layout.bands.items()},
        marks={str(mark): old_id for mark, old_id in layout.marks.items()},
        controls=layout.controls,
        pieces=pieces,
        codebooks=codebooks,
    )


def _count_ids(shards: list[Path], num_ids: int, progress: Progress) -> np.ndarray:
    """Return (ids,) int64, the occurrences of each old id, in the memory of one chunk."""
    counts, done = np.zeros(0, np.int64), 0
    total = sum(count_ids(path) for path in shards)
    for path in shards:
        for ids in iter_shard(path, _CHUNK_IDS):
            highest = int(ids.max())
            if highest >= num_ids:
                fix = "Correct ids/layout.json, or the shard."
                raise DataError(path, f"hold ids below {num_ids}", highest, fix)
            found = np.bincount(ids, minlength=len(counts))
            found[: len(counts)] += counts
            counts, done = found, done + len(ids)
            progress(done, total, "ids counted")
    return counts


def _texts(shards: list[Path], pieces: Pieces, vocab: int, share: float) -> Iterator[str]:
    """Yield the text between ids that are not text, from an even share of all chunks."""
    seen = 0
    for path in shards:
        for ids in iter_shard(path, _CHUNK_IDS):
            seen += 1
            if int(seen * share) > int((seen - 1) * share):
                yield from _runs(ids, pieces, vocab)


def _runs(ids: np.ndarray, pieces: Pieces, vocab: int) -> Iterator[str]:
    ends = np.flatnonzero(ids >= vocab)
    begin = 0
    for end in [*ends[np.diff(ends, prepend=-1) > 1].tolist(), len(ids)]:
        run = ids[begin:end]
        yield pieces.decode(run[run < vocab].tolist())  # marks may stand before the text
        begin = end


def _codebooks(codecs: Path, named: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """Return the codebook of each band that has one: the user's own, else the fitted codec's."""
    band_of = dict(zip(KINDS[1:], BANDS, strict=True))
    fitted = load_codecs(codecs) if codecs.is_dir() else {}
    found = {band_of[kind]: codec.codebook for kind, codec in fitted.items()}
    return found | {band: read_vectors(path) for band, path in named.items()}
