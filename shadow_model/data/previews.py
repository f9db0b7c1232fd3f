"""Held-out items beside what their codes give back: figures, and files to look at and listen to."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from shadow_model.data.inputs import SourcesConfig
from shadow_model.data.items import ItemRef, read_sample
from shadow_model.data.media import MediaCodec, MediaKind, contact_sheet, measure
from shadow_model.data.sound import write_wav
from shadow_model.store import write_whole

_SHOWN = 16
_HEARD = 3


def write_previews(
    folder: Path,
    codecs: Mapping[MediaKind, MediaCodec],
    held_out: Mapping[MediaKind, Sequence[ItemRef]],
    config: SourcesConfig,
) -> dict[str, dict[str, float]]:
    """Measure the codecs on held-out items and write `<kind>s.png` and some sounds.

    Returns:
        The figures of `media.measure` by kind.
    """
    quality = {}
    for kind, items in held_out.items():
        folder.mkdir(parents=True, exist_ok=True)
        codec = codecs[kind]
        arrays = read_sample(items, config.media, config.quality_items)
        quality[str(kind)] = measure(codec, arrays)
        shown = arrays[:: max(1, len(arrays) // _SHOWN)][:_SHOWN]
        decoded = [codec.decode(codec.encode(array)) for array in shown]
        write_whole(folder / f"{kind}s.png", contact_sheet(shown, decoded))
        if kind == "sound":
            _write_sounds(folder, shown[:_HEARD], decoded)
    return quality


def _write_sounds(
    folder: Path, originals: Sequence[np.ndarray], decoded: Sequence[np.ndarray]
) -> None:
    for number, (original, again) in enumerate(zip(originals, decoded, strict=False)):
        write_wav(folder / f"sound_{number}_original.wav", original)
        write_wav(folder / f"sound_{number}_decoded.wav", again)
