"""The model's shape and its choices, as one frozen config."""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from shadow_model.errors import ConfigError
from shadow_model.nn.ngrams import NUM_HEADS
from shadow_model.schema import Schema

_FEWEST_ENTRIES = 1024
MemoryPlace = Literal["pre", "post"]
"""Where a memory is read: after the prelude, or after the last block."""


class ModelConfig(Schema):
    """Shape of a Shadow; the loop count and sparsity are arguments of its forward, never here.

    Raises:
        ConfigError: From `parse` and `replace`, where the fields do not fit one another.
    """

    width: int = Field(512, ge=8, le=16_384, description="residual width d, in values")
    heads: int = Field(8, ge=1, le=256, description="query heads H; divide the width")
    kv_heads: int = Field(1, ge=1, le=256, description="key/value heads G; divide the heads")
    prelude: int = Field(2, ge=0, le=64, description="blocks before the loop")
    core: int = Field(6, ge=0, le=64, description="blocks of the loop, run once a pass")
    coda: int = Field(2, ge=0, le=64, description="blocks after the loop")
    flat: int = Field(
        0, ge=0, le=256, description="untied blocks of a flat control; 0 builds the looped body"
    )
    num_alphas: int = Field(8, ge=1, le=64, description="boundary scalars: most passes of the loop")
    alpha_init: float = Field(0.1, ge=-10, le=10, description="first value of each alpha")
    coda_alpha: bool = Field(
        True,
        description="the boundary before the coda keeps an alpha of its own, the last one, "
        "whatever the passes; false: it takes that of the last pass",
    )
    rope_base: float = Field(100_000.0, gt=1, le=1e9, description="base of the rotary frequencies")
    kv_bits: int = Field(4, ge=2, le=8, description="bits of a quantised key or value")
    index_width: int = Field(32, ge=1, le=1024, description="width of index queries and keys")
    index_block: int = Field(128, ge=1, le=4096, description="tokens of a key block")
    index_top: int = Field(16, ge=1, le=4096, description="past blocks chosen beside the own one")
    num_query_positions: int = Field(
        64, ge=1, le=65_536, description="query positions of the index loss, a block call"
    )
    document_attention: bool = Field(
        True,
        description="a position reads its own document alone; false: the whole window before it",
    )
    index_teacher: Literal["selected", "dense"] = Field(
        "selected",
        description="what teaches the index branch where attention is sparse: the softmax over "
        "the selected tokens, or over all past ones",
    )
    engram_entries: int = Field(
        0, ge=0, le=1 << 40, description="rows of each memory of n-grams; 0: no memory"
    )
    engram_width: int = Field(
        512, ge=16, le=16_384, description="values a token reads from a memory; divisible by 16"
    )
    engram_places: tuple[MemoryPlace, ...] = Field(
        ("pre", "post"), min_length=1, max_length=2, description="where memories are read"
    )
    integer_products: bool = Field(
        True, description="multiply integer operands and apply the scales outside the product"
    )
    quantise: bool = Field(True, description="False only to study the structure alone")

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        problems = []
        if self.width % self.heads:
            problems.append(f"heads={self.heads} must divide width={self.width}")
        elif (self.width // self.heads) % 2:
            problems.append(f"the head width {self.width // self.heads} must be even")
        if self.heads % self.kv_heads:
            problems.append(f"kv_heads={self.kv_heads} must divide heads={self.heads}")
        if not self.flat and not self.core:
            problems.append("core must be at least 1 where flat is 0")
        if self.engram_entries:
            problems += self._memory_problems()
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _memory_problems(self) -> Iterator[str]:
        if self.engram_entries < _FEWEST_ENTRIES:
            yield f"engram_entries={self.engram_entries} must be 0 or at least {_FEWEST_ENTRIES}"
        if self.engram_width % NUM_HEADS:
            yield f"engram_width={self.engram_width} must be divisible by {NUM_HEADS}"
        if self.engram_places not in (("pre",), ("post",), ("pre", "post")):
            yield f"engram_places={self.engram_places} must name each place once, pre first"
        if self.flat and self.flat <= self.prelude and "pre" in self.engram_places:
            yield (
                f"flat={self.flat} must exceed prelude={self.prelude}: the memory is read after "
                "as many blocks as in the run it controls"
            )

    @property
    def num_memories(self) -> int:
        """Memories of n-grams."""
        return len(self.engram_places) if self.engram_entries else 0

    @property
    def head_width(self) -> int:
        """Width D of a head."""
        return self.width // self.heads

    @property
    def ff_width(self) -> int:
        """Width of the feed-forward branch."""
        return 8 * self.width // 3


def num_block_calls(config: ModelConfig, loops: int) -> int:
    """Return how many blocks a forward executes.

    Raises:
        ConfigError: `loops` is not within 1 and the number of alphas.
    """
    check_loops(config, loops)
    if config.flat:
        return config.flat
    return config.prelude + loops * config.core + config.coda


def check_loops(config: ModelConfig, loops: int) -> None:
    """Raise ConfigError where the loop count has no alpha; a flat body ignores it."""
    if not config.flat and not 1 <= loops <= config.num_alphas:
        must = f"lie within 1 and num_alphas ({config.num_alphas})"
        raise ConfigError("loops", must, loops, "Choose fewer passes, or more alphas.")
