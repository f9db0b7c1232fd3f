"""The export stage's outputs: the file, its figures, samples of each kind beside the data's own."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shadow_model.export import MODEL_FILE, load_export
from shadow_model.generate.config import ExportConfig
from shadow_model.generate.exhibit import FIGURES, build_export
from shadow_model.generate.writer import Writer
from shadow_model.table.store import table_digest
from shadow_model.train.checkpoint import save_weights
from shadow_model.train.config import ArmConfig, LengthStage, TrainConfig

NUM = 2


@pytest.fixture(scope="module")
def stages(made: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Folders as the stages before leave them: weights, table, bins."""
    root = tmp_path_factory.mktemp("stages")
    table, bins = root / "table", root / "bins"
    table.mkdir()
    made.table.save(table / "table.npz")
    made.pieces.save(table / "pieces.model")
    for codec in made.codecs.values():
        codec.save(table / "codecs")
    weights = made.weights.replace(table_sha256=table_digest(table / "table.npz"))
    save_weights(root / "final", made.model.state_dict(), weights, table / "table.npz")
    bins.mkdir()
    np.array(held_out(made), "<u4").tofile(bins / "val.bin")
    return root / "final", table, bins


def held_out(made: Any) -> list[int]:
    """Return three documents of each kind."""
    writer = Writer(made.table, made.pieces, made.codecs)
    rng, layout = np.random.default_rng(0), made.table.layout
    rows = [layout.marks["sep"]]
    for number in range(3):
        rows += [*writer.prompt(f"cat {number}, the mat. " * 20)[1:], layout.marks["sep"]]
        for kind, band, num in (
            ("picture", "image", 16),
            ("sound", "audio", 7),
            ("clip", "video", 8),
        ):
            codes = layout.offsets[band] + rng.integers(0, 16, num)
            rows += [*writer.prompt(f"a {kind} {number}", kind)[1:], *codes.tolist()]
            rows += [layout.control("[end_gen]"), layout.marks["sep"]]
    return rows


def test_writes_model_figures_and_samples(
    made: Any, stages: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    length = LengthStage(from_frac=0, ctx_tokens=64)
    train = TrainConfig(tokens=6400, batch_tokens=64, lengths=(length,), micro_batches_large=1)
    arm = ArmConfig(tag="proof", model=made.weights.model, train=train)
    config = ExportConfig(samples=NUM, text_rows=8, prompt_rows=4, speed_rows=4)
    figures = build_export(tmp_path, *stages, arm, config)
    assert figures == json.loads((tmp_path / FIGURES).read_text())
    assert figures["file_bytes"] == (tmp_path / MODEL_FILE).stat().st_size
    assert all(speed > 0 for speed in figures["tokens_per_s"].values())
    assert load_export(tmp_path / MODEL_FILE).stated.loops == 3
    samples = json.loads((tmp_path / "samples" / "samples.json").read_text())
    kinds = [sample["kind"] for sample in samples]
    assert sorted(kinds) == sorted(NUM * ["text", "picture", "sound", "clip"])
    text = samples[0]
    whole = "cat 0, the mat. " * 20
    assert whole.startswith(text["begins"] + text["data"])
    assert text["model"]
    assert samples[kinds.index("sound")]["begins"] == "a sound 0[gen_audio]"
    for kind, suffix in (("picture", "png"), ("sound", "wav"), ("clip", "gif")):
        assert Image.open(tmp_path / "samples" / f"{kind}s.png").width > 0
        made_files = sorted((tmp_path / "samples").glob(f"{kind}_*_model_*.{suffix}"))
        assert len(made_files) == NUM
