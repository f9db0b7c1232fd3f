"""How one arm is trained: tokens, phases, learning rate, evaluation, checkpoints, device.

Fractions (`_frac`) are shares of the run's steps, each step counted when it begins.
Source: the learning rate, clipping and phases are the reference run's; growth of loops follows
arXiv 2609.19107, which grows later (0.75-0.88 of the tokens).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from shadow_model.nn.config import ModelConfig
from shadow_model.schema import NOT_IN_KEY, Schema


class LengthStage(Schema):
    """A context length, from a share of the run on."""

    from_frac: float = Field(ge=0, lt=1, description="share of the steps where it begins")
    ctx_tokens: int = Field(ge=8, le=1 << 20, description="tokens a window")


class TrainConfig(Schema):
    """Every choice of a training run.

    Raises:
        ConfigError: From `parse`, with every problem of the combination at once.
    """

    tokens: int = Field(ge=1, description="training tokens in all")
    batch_tokens: int = Field(32_768, ge=8, description="tokens an update, at every context length")
    lengths: tuple[LengthStage, ...] = Field(
        (
            LengthStage(from_frac=0.0, ctx_tokens=2048),
            LengthStage(from_frac=0.92, ctx_tokens=4096),
            LengthStage(from_frac=0.97, ctx_tokens=8192),
        ),
        min_length=1,
        description="context lengths; the first from 0",
    )
    micro_batches: int = Field(1, ge=1, le=4096, description="parts of an update's batch")
    micro_batches_large: int = Field(
        2, ge=1, le=4096, description="the same after growth, or beyond the first context length"
    )
    loops: tuple[int, int] = Field((2, 4), description="passes over the core: before, after growth")
    growth_at_frac: float = Field(0.6, ge=0, le=1, description="share of the steps at growth")
    copy_alpha: bool = Field(
        True, description="at growth, alphas of new passes start as those of the passes they repeat"
    )
    sparse_from_ctx_tokens: int = Field(
        4096, ge=1, description="attention is block-sparse from this context length on"
    )
    index_weight: float = Field(0.1, ge=0, le=100, description="weight of the index KL in the loss")
    index_reduction: Literal["mean", "sum"] = Field(
        "mean", description="the index KL over block calls: their mean, or their sum"
    )

    optimizer: Literal["adamw", "muon"] = Field(
        "adamw", description="of the blocks' matrices; all else is trained by AdamW"
    )
    lr: float = Field(3e-4, gt=0, le=1, description="peak learning rate")
    decay: Literal["cosine", "warm_hold_decay"] = Field(
        "cosine", description="after the warm-up: cosine, or held and then let down"
    )
    warmup_frac: float = Field(0.02, ge=0, lt=1, description="share of the steps that warm up")
    hold_frac: float = Field(5 / 7, ge=0, lt=1, description="warm_hold_decay: share held, [0, 1)")
    floor_frac: float = Field(0.1, ge=0, le=1, description="last learning rate over the peak")
    lr_lag_steps: int = Field(
        0,
        ge=0,
        le=1,
        description="1: the learning rate of an update is that of its beginning, so that the "
        "first learns nothing; only to go on with a run that was trained so",
    )
    rewarm_steps: int = Field(
        40, ge=0, description="updates after growth that warm up again from 0; 0: none"
    )
    betas: tuple[float, float] = Field((0.9, 0.95), description="AdamW's decay of both moments")
    eps: float = Field(1e-8, gt=0, le=1e-2, description="AdamW's epsilon")
    weight_decay: float = Field(0.01, ge=0, le=1, description="of the matrices; none on alpha")
    clip_norm: float = Field(
        1.0,
        gt=0,
        le=1e6,
        description="largest L2 norm of all gradients, those of memories' rows apart",
    )
    engram_lr_factor: float = Field(
        5.0, gt=0, le=1e3, description="learning rate of memories' rows over that of the rest"
    )

    seed: int = Field(0, ge=0, lt=1 << 31, description="of weights, windows and index positions")
    sampling: Literal["epoch", "random"] = Field(
        "epoch", description="each window once an epoch, or window starts drawn with replacement"
    )
    max_epochs: float = Field(4.0, gt=0, le=1e6, description="refuse to read the data more often")

    log_every_steps: int = Field(50, ge=1, description="updates between records of the loss")
    evaluate_every_steps: int = Field(1000, ge=1, description="updates between evaluations")
    evaluate_ctx_tokens: int = Field(2048, ge=8, description="tokens a held-out window, fixed")
    evaluate_tokens: int = Field(500_000, ge=8, description="held-out tokens at each evaluation")
    evaluate_final_tokens: int = Field(
        10_000_000, ge=8, description="the same at growth and at the end; all where there are fewer"
    )
    evaluate_final_loops: bool = Field(
        True, description="before growth, evaluate with the final loops as well"
    )
    checkpoint_every_steps: int = Field(2000, ge=1, description="updates between checkpoints")
    keep_checkpoints: int = Field(2, ge=1, le=1000, description="last checkpoints kept")
    hours: float | None = Field(
        None, gt=0, description="wall-clock budget in hours over all resumes; null: none"
    )

    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: CUDA where it is")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="of matrix products under autocast; auto: bfloat16 on CUDA"
    )
    threads: int | None = Field(None, ge=1, le=1024, description="CPU threads; null: torch's own")
    compile: bool = Field(False, description="compile the blocks (slow start, faster steps)")
    progress_every_s: float = Field(
        1.0,
        ge=0,
        le=3600,
        description="seconds between progress reports",
        json_schema_extra=NOT_IN_KEY,
    )

    @property
    def num_steps(self) -> int:
        """Updates in all."""
        return self.tokens // self.batch_tokens

    @model_validator(mode="after")
    def _check(self) -> "TrainConfig":
        problems = [*self._length_problems(), *self._other_problems()]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _length_problems(self) -> Iterator[str]:
        fractions = [stage.from_frac for stage in self.lengths]
        if fractions[0] != 0 or sorted(set(fractions)) != fractions:
            yield f"lengths must begin at 0 and rise, found from_frac {fractions}"
        most = max(self.micro_batches, self.micro_batches_large)
        for ctx in sorted({stage.ctx_tokens for stage in self.lengths}):
            windows, rest = divmod(self.batch_tokens, ctx)
            if rest:
                yield f"batch_tokens {self.batch_tokens} must be divisible by ctx_tokens {ctx}"
            elif windows < most:
                yield (
                    f"batch_tokens {self.batch_tokens} hold {windows} windows of {ctx} tokens, "
                    f"too few for {most} micro-batches: one would be empty"
                )

    def _other_problems(self) -> Iterator[str]:
        if self.tokens < self.batch_tokens:
            yield f"tokens {self.tokens} must be at least batch_tokens {self.batch_tokens}"
        if not 1 <= self.loops[0] <= self.loops[1]:
            yield f"loops must be at least 1 and not fall, found {list(self.loops)}"
        if not all(0 <= beta < 1 for beta in self.betas):
            yield f"betas must lie in [0, 1), found {list(self.betas)}"
        fewest = min(self.evaluate_tokens, self.evaluate_final_tokens)
        if fewest < 2 * self.evaluate_ctx_tokens:
            yield (
                f"evaluate_tokens {fewest} must hold two windows of evaluate_ctx_tokens "
                f"{self.evaluate_ctx_tokens}: a standard error needs two"
            )
        if self.decay == "warm_hold_decay" and self.warmup_frac >= self.hold_frac:
            yield f"hold_frac {self.hold_frac} must be above warmup_frac {self.warmup_frac}"


class ArmConfig(Schema):
    """One arm of a comparison: a model and how it is trained."""

    tag: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$", description="its name in records and files"
    )
    model: ModelConfig
    train: TrainConfig

    @model_validator(mode="after")
    def _check(self) -> "ArmConfig":
        loops = self.train.loops[1]
        if not self.model.flat and loops > self.model.num_alphas:
            raise ValueError(
                f"train.loops {loops} must not exceed num_alphas {self.model.num_alphas}"
            )
        return self


class TrainJob(Schema):
    """One arm, its inputs and where it works."""

    arm: ArmConfig
    table: Path = Field(description="table.npz", json_schema_extra=NOT_IN_KEY)
    bins: Path = Field(
        description="folder of train.bin, val.bin and packed.json", json_schema_extra=NOT_IN_KEY
    )
    work: Path = Field(
        description="folder of checkpoints, metrics and the final weights; a run resumes there",
        json_schema_extra=NOT_IN_KEY,
    )
    events: Path | None = Field(
        None,
        description="folder for TensorBoard's event files, where that is installed; null: none",
        json_schema_extra=NOT_IN_KEY,
    )
    reference: Path | None = Field(
        None,
        description="the reference program's `{tag}_latest.pt` to go on from, where the work "
        "folder holds no checkpoint yet",
        json_schema_extra=NOT_IN_KEY,
    )
