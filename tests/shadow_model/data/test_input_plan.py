"""Plans of inputs, and what the pieces are learnt from."""

from pathlib import Path

import numpy as np

from shadow_model.data.input_plan import InputPlan, plan_inputs
from shadow_model.data.inputs import SourceInput, SourcesConfig
from shadow_model.data.picture import write_png
from shadow_model.data.shards import write_shard
from shadow_model.data.text_sample import TextSample
from shadow_model.progress import silent


def planned(tmp_path: Path, kind: str) -> tuple[InputPlan, TextSample]:
    source = SourceInput.parse({"name": kind, "kind": kind, "path": tmp_path / kind}, "test")
    config = SourcesConfig(inputs=(source,), shard_tokens=512, val_every=3)
    sample = TextSample(1 << 20)
    (plan,) = plan_inputs(config, None, sample, tmp_path / "ids", silent)
    return plan, sample


def test_only_training_documents_are_sampled(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    texts = [f"{number:04d} " * 200 for number in range(20)]  # two fill a shard
    for number, text in enumerate(texts):
        (tmp_path / "text" / f"{number:02d}.txt").write_text(text)
    plan, sample = planned(tmp_path, "text")
    assert [shard.documents for shard in plan.shards] == [2] * 10
    training = [
        text
        for number, shard in enumerate(plan.shards)
        if not shard.held_out(3)
        for text in texts[2 * number : 2 * number + 2]
    ]
    assert 0 < len(training) < 20
    assert sample.texts() == training


def test_only_training_captions_are_sampled(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for letter in "abcdefghijkl":
        write_png(tmp_path / "pictures" / f"thing {letter}.png", np.zeros((4, 4, 3), np.float32))
    plan, sample = planned(tmp_path, "pictures")
    training = [shard for shard in plan.shards if not shard.held_out(3)]
    assert 0 < len(training) < len(plan.shards) == 12
    assert sample.texts() == [item.caption for shard in training for item in shard.items]


def test_ready_ids_are_counted_and_linked(tmp_path: Path) -> None:
    write_shard(tmp_path / "ids-of-mine" / "part_0.npz", np.arange(7))
    (tmp_path / "ids-of-mine").rename(tmp_path / "ids")
    source = SourceInput(name="mine", kind="ids", path=tmp_path / "ids")
    config = SourcesConfig(inputs=(source,))
    (plan,) = plan_inputs(config, None, TextSample(1), tmp_path / "out", silent)
    assert plan.ready[0].tokens["text"] == 7
    assert plan.shards[0].kinds == {"text"}
    assert (tmp_path / "out" / "knowledge" / "mine" / "part_0.npz").is_file()
