"""Going on with a training run of the reference program, from its `{tag}_latest.pt`.

The file holds weights, AdamW's state, the last step, the tokens seen and the generator that draws
window starts. `reference_arm` is the run that its cfg describes; the same table and bins then give
the same batches and learning rates. Not kept by that program, so not the same: the positions of its
index loss. Ours, not its own: alpha does not decay, and dropped targets do not count (that program
divides by them too).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from shadow_model.errors import CheckpointError, ConfigError
from shadow_model.nn.model import Shadow
from shadow_model.train.config import ArmConfig, LengthStage, TrainConfig
from shadow_model.train.optim import MOMENTS
from shadow_model.train.reference import (
    TRAIN_CHOICES,
    fitting_weights,
    read_content,
    reference_config,
)

_CTX_TOKENS = 2048
_STAGE = re.compile(r"(0?\.\d+|0):(\d+)")
_PARTS = ("opt", "step", "tok_seen", "rng")
_TRAIN = {
    "tokens": "tokens",
    "growth_at_frac": "grow_at",
    "sparse_from_ctx_tokens": "sparse_ctx",
    "index_weight": "index_w",
    "lr": "lr",
    "seed": "seed",
    "micro_batches_large": "micro_k4",
    "log_every_steps": "log_every",
    "evaluate_every_steps": "eval_every",
    "checkpoint_every_steps": "ckpt_every",
}
_FIX = "Name a `{tag}_latest.pt`: only those hold what training needs."


class Continuation(NamedTuple):
    """What a run takes over.

    Attributes:
        weights: Parameter -> float32 tensor.
        moments: `<parameter>.<moment>` of AdamW.
        generator: State of the generator of window starts.
        step: Updates done.
        elapsed_s: Seconds that they took.
    """

    weights: dict[str, Tensor]
    moments: dict[str, Tensor]
    generator: dict[str, Any]
    step: int
    elapsed_s: float


def reference_arm(path: Path | str, lengths: Sequence[LengthStage] | None = None) -> ArmConfig:
    """Return the run that a reference checkpoint's cfg describes, with that program's choices.

    Args:
        path: The file.
        lengths: Context lengths, in place of those of the cfg.

    Raises:
        CheckpointError: The file is no such checkpoint, or its cfg lacks a field or states
            context lengths in an unknown way.
        ConfigError: A value of the cfg cannot be.
    """
    content = read_content(Path(path))
    cfg = content["cfg"]
    missing = [name for name in (*_TRAIN.values(), "bs", "tag") if name not in cfg]
    if missing:
        raise CheckpointError(path, "say in cfg how it is trained", f"none of {missing}", _FIX)
    fields = {ours: cfg[theirs] for ours, theirs in _TRAIN.items()}
    fields["batch_tokens"] = cfg["bs"] * _CTX_TOKENS
    fields["lengths"] = tuple(lengths or _lengths(str(cfg.get("len_stages", "")), path))
    fields["hours"] = cfg.get("hours") or None
    train = TrainConfig.parse({**fields, **TRAIN_CHOICES, "lr_lag_steps": 1}, path)
    model = reference_config(cfg, path)
    return ArmConfig.parse({"tag": cfg["tag"], "model": model, "train": train}, path)


def read_continuation(path: Path, model: Shadow, train: TrainConfig) -> Continuation:
    """Read what a run takes over.

    Args:
        path: `{tag}_latest.pt`.
        model: That goes on; its weights stay as they are.
        train: How it goes on.

    Raises:
        CheckpointError: The file lacks a part, or its weights or moments are not the model's.
        ConfigError: The run reads its data in another way, so that it cannot go on in it.
    """
    content = read_content(path)
    if missing := [name for name in _PARTS if name not in content]:
        raise CheckpointError(path, f"hold {', '.join(_PARTS)}", f"none of {missing}", _FIX)
    if train.sampling != "random":
        must, fix = "be 'random' to go on in the reference's data", "Use `reference_arm`."
        raise ConfigError("train.sampling", must, repr(train.sampling), fix)
    weights = fitting_weights(content["state"], model, path)
    step = int(content["step"]) + 1
    if int(content["tok_seen"]) != step * train.batch_tokens:
        must = f"be those that the file's {step} updates read: {content['tok_seen']} tokens"
        fix = "Use `reference_arm`."
        raise ConfigError("train.batch_tokens", must, step * train.batch_tokens, fix)
    return Continuation(
        weights=weights,
        moments=dict(_moments(content["opt"], weights, path)),
        generator=dict(content["rng"]),
        step=step,
        elapsed_s=float(content.get("elapsed", 0.0)),
    )


def _lengths(text: str, where: object) -> Iterator[LengthStage]:
    """Read `0.92:4096,0.97:8192`: shares of the run and context lengths from there on."""
    yield LengthStage(from_frac=0.0, ctx_tokens=_CTX_TOKENS)
    for part in filter(None, text.split(",")):
        found = _STAGE.fullmatch(part.strip())
        if found is None:
            must, fix = "state context lengths as share:tokens", "Pass `lengths`."
            raise CheckpointError(where, must, text, fix)
        if float(found[1]) > 0:
            yield LengthStage(from_frac=float(found[1]), ctx_tokens=int(found[2]))


def _moments(
    optimizers: Any, weights: Mapping[str, Tensor], where: object
) -> Iterator[tuple[str, Tensor]]:
    """Yield AdamW's state by name; the file numbers parameters in the order of its weights."""
    try:
        (optimizer,) = optimizers
        numbers = [n for group in optimizer["param_groups"] for n in group["params"]]
        states = optimizer["state"]
        for number, name in zip(numbers, weights, strict=True):
            yield from ((f"{name}.{moment}", states[number][moment]) for moment in MOMENTS)
    except (KeyError, TypeError, ValueError) as error:
        must = f"hold one AdamW's state of {len(weights)} weights"
        raise CheckpointError(where, must, f"{type(error).__name__}: {error}", _FIX) from error
