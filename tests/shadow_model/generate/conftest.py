"""A small trained-looking model with pieces and codecs, exported once for all tests."""

from pathlib import Path

import numpy as np
import pytest
import torch

from shadow_model.data.clip import ClipCodec, ClipConfig
from shadow_model.data.media import MediaCodec, MediaKind
from shadow_model.data.picture import PictureCodec, PictureConfig
from shadow_model.data.sound import SoundCodec, SoundConfig
from shadow_model.data.text import Pieces
from shadow_model.export import MODEL_FILE, Size, write_export
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.model import Shadow
from shadow_model.table.store import Table
from shadow_model.table.synthetic import synthetic_table
from shadow_model.train.checkpoint import Weights

CONFIG = ModelConfig(
    width=32, heads=4, prelude=1, core=1, coda=1, index_block=16, index_top=2, kv_heads=2
)
TEXT = "a small cat sat on the mat, and the mat was red; the cat was not. "


class Made:
    """The parts of the export."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(0)
        self.pieces = Pieces.train([TEXT * 20], 300)
        self.table: Table = synthetic_table(self.pieces.size, 1)
        self.model = Shadow(CONFIG, self.table, seed=2).eval()
        small = {"first": 4, "second": 4, "fit_items": 8, "components": 4}
        pictures = [rng.random((16, 16, 3)).astype(np.float32) for _ in range(8)]
        sounds = [rng.standard_normal(3200).astype(np.float32) for _ in range(8)]
        clips = [rng.random((4, 8, 8, 3)).astype(np.float32) for _ in range(8)]
        self.codecs: dict[MediaKind, MediaCodec] = {
            "picture": PictureCodec.fit(pictures, PictureConfig(side=16, **small), 0),
            "sound": SoundCodec.fit(sounds, SoundConfig(max_seconds=0.2, **small), 0),
            "clip": ClipCodec.fit(clips, ClipConfig(side=8, frames=4, **small), 0),
        }
        self.weights = Weights(
            tag="proof", model=CONFIG, table_sha256="0" * 64, loops=3, step=5, tokens=640
        )
        self.path = folder / MODEL_FILE
        self.size: Size = write_export(
            self.path, self.model, self.weights, self.table, self.pieces, self.codecs
        )


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The export and what it was made of."""
    torch.set_num_threads(1)
    return Made(tmp_path_factory.mktemp("export"))
