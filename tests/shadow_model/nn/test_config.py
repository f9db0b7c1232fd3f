"""ModelConfig: what fits together, and how many blocks run."""

import pytest

from shadow_model.errors import ConfigError
from shadow_model.nn.config import ModelConfig, num_block_calls


def test_default_is_the_full_shape() -> None:
    config = ModelConfig()
    assert (config.head_width, config.ff_width) == (64, 1365)
    assert [num_block_calls(config, loops) for loops in (2, 4)] == [16, 28]


def test_flat_ignores_the_loop_count() -> None:
    assert num_block_calls(ModelConfig(flat=10), 99) == 10


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"heads": 7}, "heads=7 must divide width=512"),
        ({"kv_heads": 3}, "kv_heads=3 must divide heads=8"),
        ({"width": 24, "heads": 8}, "head width 3 must be even"),
        ({"core": 0}, "core must be at least 1"),
        ({"kv_bits": 1}, "kv_bits"),
        ({"wdith": 64}, "did you mean 'width'"),
    ],
)
def test_refuses_what_does_not_fit(changes: dict[str, int], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        ModelConfig().replace(**changes)


@pytest.mark.parametrize("loops", [0, 9])
def test_refuses_passes_without_an_alpha(loops: int) -> None:
    with pytest.raises(ConfigError, match="num_alphas"):
        num_block_calls(ModelConfig(), loops)
