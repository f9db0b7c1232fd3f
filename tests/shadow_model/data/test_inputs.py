"""What the sources stage is told."""

from pathlib import Path
from typing import Any

import pytest

from shadow_model.data.inputs import SourceInput, SourcesConfig
from shadow_model.errors import ConfigError

TEXT = {"name": "mine", "kind": "text", "path": "/data"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "mine", "kind": "text"}, "needs a path"),
        ({"name": "mine", "kind": "demo_text", "path": "/data"}, "has no path"),
        ({**TEXT, "kind": "texts"}, "kind"),
        ({**TEXT, "name": "../up"}, "name"),
        ({**TEXT, "lane": "a/b"}, "lane"),
        ({**TEXT, "shard_token": 3}, "did you mean 'shard_tokens'"),
    ],
)
def test_a_faulty_input_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SourceInput.parse(fields, "recipe")


@pytest.mark.parametrize("inputs", [[], [TEXT, TEXT]])
def test_inputs_must_be_there_and_differ(inputs: list[Any]) -> None:
    with pytest.raises(ConfigError, match=r"inputs|twice: knowledge/mine"):
        SourcesConfig.parse({"inputs": inputs}, "recipe")


def test_paths_do_not_enter_the_key() -> None:
    here, there = (
        SourcesConfig(
            inputs=(SourceInput(name="mine", kind="text", path=Path(place)),),
            pieces=Path(place) / "pieces.model",
            codecs=Path(place),
        )
        for place in ("/here", "/there")
    )
    assert here.key_fields() == there.key_fields()


def test_an_input_may_have_shards_of_its_own_size() -> None:
    own, usual = (
        SourceInput(name="mine", kind="demo_text", shard_tokens=size) for size in (1000, None)
    )
    config = SourcesConfig(inputs=(own,), shard_tokens=5000)
    assert (config.shard_size(own), config.shard_size(usual)) == (1000, 5000)
