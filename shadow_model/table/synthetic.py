"""A seeded random table and spans of every kind, for tests, smoke and speed.

The table is drawn, not stored, by the rule that the golden files state: from one generator first
the bits, row after row, then the bias. The spans are documents as the pack stage writes them; their
ids follow a skewed chain, the same for every seed, so that a model has something to learn fast.

Shapes: B batch rows, T tokens, R table rows.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from shadow_model.table.layout import BANDS, GENERATE_END, REQUIRED_CONTROLS, Layout
from shadow_model.table.store import BITS, Table

_CHUNK_ROWS = 4096
_STRUCTURE_SEED = 20_240
_NUM_FREQUENT = 64
_FOLLOW_FRAC = 0.6
_TEXT_TOKENS = (64, 128)
_CAPTION_TOKENS = (4, 16)
_BAND_TOKENS = {"image": (12, 32), "audio": (8, 24), "video": (8, 24)}
_TEXT = ("", "")
_FORMS = tuple((band, order) for band in BANDS for order in ("shown", "asked"))


def synthetic_table(num_lang: int, seed: int, controls: Sequence[str] = REQUIRED_CONTROLS) -> Table:
    """Draw a table whose rows mean nothing.

    Args:
        num_lang: Language rows; the bands always have their full size.
        seed: Decides every bit and bias.
        controls: Names of the control rows, the required ones among them.

    Returns:
        A table with fair random bits, a bias of normal(-3, 1) and old ids 0, 1, 2...
    """
    layout = Layout(num_lang=num_lang, controls=tuple(controls))
    rng, rows = np.random.default_rng(seed), layout.num_rows
    bits = np.empty((rows, BITS), np.uint8)
    for first in range(0, rows, _CHUNK_ROWS):  # the float draws are 8 times the bits
        part = bits[first : first + _CHUNK_ROWS]
        part[:] = rng.random(part.shape) < 0.5
    bias = rng.normal(-3, 1, rows).astype(np.float32)
    return Table(bits, bias, layout, np.arange(num_lang, dtype=np.int64))


def synthetic_spans(layout: Layout, batch: int, tokens: int, seed: int) -> np.ndarray:
    """Draw rows of whole documents: text, and pictures, sounds and clips in both orders.

    About half of the tokens are text; 512 tokens of a row hold every kind. The last document of a
    row is cut where the row ends.

    Args:
        layout: The table's layout.
        batch: Rows (B).
        tokens: Inputs a row (T); one more id is drawn, the last target.
        seed: Decides the draws, not what is learnable in them.

    Returns:
        (B, T + 1) int64 row ids.
    """
    rng, chains = np.random.default_rng(seed), _chains(layout)
    return np.stack([_row(layout, chains, tokens + 1, rng, b) for b in range(batch)])


def _row(
    layout: Layout, chains: dict[str, np.ndarray], length: int, rng: np.random.Generator, turn: int
) -> np.ndarray:
    parts: list[np.ndarray] = []
    for band, order in _documents(turn):
        parts.append(_document(layout, chains, band, order, rng))
        if sum(map(len, parts)) >= length:
            break
    return np.concatenate(parts)[:length]


def _documents(turn: int) -> Iterator[tuple[str, str]]:
    """Yield (band, order) for ever: two spans, then a text; `turn` moves the first."""
    step = turn
    while True:
        yield _FORMS[2 * step % len(_FORMS)]
        yield _FORMS[(2 * step + 3) % len(_FORMS)]
        yield _TEXT
        step += 1


def _document(
    layout: Layout,
    chains: dict[str, np.ndarray],
    band: str,
    order: str,
    rng: np.random.Generator,
) -> np.ndarray:
    sep = [layout.marks["sep"]]
    if not band:
        return np.concatenate([_draw(chains[""], _TEXT_TOKENS, rng), sep])
    caption = _draw(chains[""], _CAPTION_TOKENS, rng)
    codes = _draw(chains[band], _BAND_TOKENS[band], rng)
    if order == "shown":
        start, end = layout.marks[band], layout.control(f"[/{band}]")
        return np.concatenate([[start], codes, [end], caption, sep])
    start, end = layout.control(f"[gen_{band}]"), layout.control(GENERATE_END)
    return np.concatenate([caption, [start], codes, [end], sep])


def _chains(layout: Layout) -> dict[str, np.ndarray]:
    """Return for text ("") and each band its frequent rows, in the order in which they follow."""
    rng = np.random.default_rng(_STRUCTURE_SEED)
    firsts = [0, *layout.offsets.values(), layout.marks["image"]]
    names = ("", *BANDS)
    return {
        name: first + rng.permutation(last - first)[:_NUM_FREQUENT]
        for name, first, last in zip(names, firsts[:-1], firsts[1:], strict=True)
    }


def _draw(chain: np.ndarray, bounds: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Draw ids: most often the chain's next row, otherwise a new start, early rows likelier."""
    length = int(rng.integers(*bounds, endpoint=True))
    places = np.arange(length)
    fresh = rng.random(length) >= _FOLLOW_FRAC
    fresh[0] = True
    starts = (len(chain) * rng.random(length) ** 3).astype(np.int64)
    last = np.maximum.accumulate(np.where(fresh, places, 0))
    return np.asarray(chain[(starts[last] + places - last) % len(chain)])
