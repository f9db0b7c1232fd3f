"""Held-out items to look at and listen to."""

from pathlib import Path

import numpy as np

from shadow_model.data.inputs import SourceInput, SourcesConfig
from shadow_model.data.items import ItemRef
from shadow_model.data.media import MediaConfig, MediaKind, fit_codec
from shadow_model.data.picture import PictureConfig, read_picture
from shadow_model.data.previews import write_previews
from shadow_model.data.sound import SoundConfig, read_sound

MEDIA = MediaConfig(
    picture=PictureConfig(side=16, first=8, second=4, components=0),
    sound=SoundConfig(first=8, second=4, components=0, phase_rounds=2),
)
CONFIG = SourcesConfig(
    inputs=(SourceInput(name="n", kind="demo_media"),), media=MEDIA, quality_items=5
)


def items(kind: MediaKind) -> list[ItemRef]:
    rng = np.random.default_rng(0)
    shape = (16, 16, 3) if kind == "picture" else (3200,)
    arrays = [rng.random(shape, np.float32) * 0.5 for _ in range(12)]
    return [ItemRef(kind, "", "", 1, None, array) for array in arrays]


def test_sheets_sounds_and_figures_are_made(tmp_path: Path) -> None:
    held_out = {kind: items(kind) for kind in ("picture", "sound")}
    codecs = {
        kind: fit_codec(kind, [i.array for i in found if i.array is not None], MEDIA, 0)
        for kind, found in held_out.items()
    }
    figures = write_previews(tmp_path / "preview", codecs, held_out, CONFIG)
    assert figures["picture"]["items"] == figures["sound"]["items"] == CONFIG.quality_items
    assert figures["picture"]["psnr_db"] > 0
    assert figures["sound"]["log_mel_distance_db"] > 0
    names = {path.name for path in (tmp_path / "preview").iterdir()}
    heard = {f"sound_{n}_{what}.wav" for n in range(3) for what in ("original", "decoded")}
    assert names == {"pictures.png", "sounds.png", *heard}
    assert read_picture(tmp_path / "preview" / "pictures.png").std() > 0
    assert len(read_sound(tmp_path / "preview" / "sound_0_decoded.wav")) == 3200


def test_nothing_held_out_leaves_no_folder(tmp_path: Path) -> None:
    assert write_previews(tmp_path / "preview", {}, {}, CONFIG) == {}
    assert not (tmp_path / "preview").exists()
