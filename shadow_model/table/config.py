"""What decides the rows of a table."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from shadow_model.schema import NOT_IN_KEY, Schema


class TableConfig(Schema):
    """How language rows, band rows and the bias are made.

    Raises:
        ConfigError: From `parse`, where a source of vectors lacks its file.
    """

    num_lang: int | None = Field(
        None, ge=1, le=1 << 24, description="language rows: the most frequent pieces; None: all"
    )
    vectors: Literal["corpus", "file", "packed"] = Field(
        "corpus",
        description="where codes come from: words of the training text, a float matrix, old codes",
    )
    vectors_path: Path | None = Field(
        None,
        json_schema_extra=NOT_IN_KEY,
        description="file: matrix (.npy, .safetensors); packed: (V, 64) uint8 .npy",
    )
    vectors_tensor: str | None = Field(
        None, description="name of the matrix in a .safetensors file that holds several"
    )
    tokenizer: Path | None = Field(
        None,
        json_schema_extra=NOT_IN_KEY,
        description="tokenizer.json whose ids number the rows of vectors_path; None: old ids do",
    )
    codebooks: dict[Literal["image", "audio", "video"], Path] = Field(
        default_factory=dict,
        json_schema_extra=NOT_IN_KEY,
        description="band -> float matrix (codes, dimensions) in place of the fitted codec's",
    )
    ratings: Path | None = Field(
        None,
        json_schema_extra=NOT_IN_KEY,
        description="CSV of word,word,rating to compare codes with; measured only",
    )
    seed: int = Field(0, ge=0, lt=1 << 32, description="decides every random choice")
    min_distance: int = Field(24, ge=1, le=128, description="bits in which any two rows differ")
    surface_bits: int = Field(
        16, ge=0, le=64, description="bits each for leading space, Capital, ALL CAPS; 0: none"
    )
    itq_iterations: int = Field(30, ge=1, le=1000, description="rounds of rotation")
    bias_smoothing: float = Field(
        0.5, gt=0, le=1e6, description="tokens added to every row's count before the logarithm"
    )
    corpus_tokens: int = Field(
        40_000_000, ge=1, le=10**10, description="pieces of training text read for word vectors"
    )
    window_words: int = Field(5, ge=1, le=50, description="farthest neighbour counted, in words")
    dimensions: int = Field(300, ge=2, le=2048, description="dimensions of word vectors")
    max_words: int = Field(40_000, ge=2, le=10**6, description="words with vectors, at most")
    min_word_count: int = Field(5, ge=1, le=10**6, description="occurrences that a word needs")
    measured_pairs: int = Field(
        100_000, ge=100, le=10**8, description="random pairs of rows in each rank correlation"
    )

    @model_validator(mode="after")
    def _check_files(self) -> "TableConfig":
        if self.vectors != "corpus" and self.vectors_path is None:
            raise ValueError(f"vectors = {self.vectors!r} needs vectors_path")
        return self

    @property
    def files(self) -> dict[str, Path]:
        """The files whose content can change a result: field name -> path."""
        single = {name: getattr(self, name) for name in ("vectors_path", "tokenizer", "ratings")}
        named = {name: path for name, path in single.items() if path is not None}
        return named | {f"codebooks.{band}": path for band, path in self.codebooks.items()}
