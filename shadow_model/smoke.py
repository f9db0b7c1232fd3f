"""Stage 4: a few updates on synthetic spans, and everything that must hold of them.

The shapes are those of the reference's own smoke test; the index blocks are small, so that the
sparse steps really leave blocks out. Run alone: `python -m shadow_model.smoke`.

Not covered: learning on real data, checkpoints, the GPU's own kernels where there is no GPU.
"""

import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from pydantic import Field
from rich.console import Console
from rich.table import Table as RichTable
from torch import Tensor

from shadow_model.errors import NumericsError
from shadow_model.nn.attention import sparse_attention
from shadow_model.nn.body import boundary_alphas
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.index import select_blocks
from shadow_model.nn.kinds import next_kinds
from shadow_model.nn.linear import TernaryWeight
from shadow_model.nn.quant import int8_parts, key_value, ternary
from shadow_model.progress import Progress, silent
from shadow_model.schema import Schema
from shadow_model.table.layout import KINDS
from shadow_model.table.store import BITS, Table
from shadow_model.table.synthetic import synthetic_spans, synthetic_table
from shadow_model.train.config import ArmConfig, LengthStage, TrainConfig
from shadow_model.train.device import Device, DeviceName, choose_device
from shadow_model.train.run import new_learner
from shadow_model.train.schedule import Phase
from shadow_model.train.step import Learner, TokenBatch, update

_LAST_STEPS = 3
"""The loss at the end is a mean over so many updates: batches differ."""
_EVERY_KIND = -1


class SmokeConfig(Schema):
    """Shapes of the check, and how much must be learnt."""

    model: ModelConfig = Field(
        ModelConfig(width=128, heads=4, prelude=1, core=2, coda=1, index_block=128, index_top=4),
        description="a small looped model; its index blocks leave some out at `ctx_tokens`",
    )
    num_lang: int = Field(1000, ge=64, le=1 << 20, description="language rows of the table")
    windows: int = Field(4, ge=1, le=1024, description="windows of a batch")
    ctx_tokens: int = Field(1024, ge=64, le=1 << 16, description="tokens of a window")
    steps: int = Field(30, ge=4, le=10_000, description="updates")
    growth_step: int = Field(15, ge=1, le=10_000, description="updates before the loops grow")
    loops: tuple[int, int] = Field((2, 4), description="passes over the core: before, after growth")
    lr: float = Field(3e-3, gt=0, le=1, description="peak learning rate")
    loss_fall: float = Field(1.0, ge=0, description="nats that the loss must fall by")
    seed: int = Field(0, ge=0, lt=1 << 31, description="of table, spans and weights")
    device: DeviceName = Field("auto", description="auto: CUDA where it is")
    threads: int | None = Field(None, ge=1, le=1024, description="CPU threads; null: torch's own")


class Check(NamedTuple):
    """One thing that must hold."""

    name: str
    must: str
    found: str
    passed: bool


class _Trained(NamedTuple):
    """What the updates leave for the checks.

    Attributes:
        losses: Nats a target, before each update.
        index_kls: Means of each update.
        dropped: Targets outside their row set, over all updates.
        gradients: Parameter -> L2 norm before clipping at the last update of each form (loops,
            sparse), the smallest of them.
        seconds: Time of all updates.
    """

    learner: Learner
    table: Table
    losses: list[float]
    index_kls: list[float]
    dropped: int
    gradients: dict[str, float]
    alpha_gradients: Tensor
    seconds: float


def run_smoke(config: SmokeConfig, progress: Progress = silent) -> dict[str, Any]:
    """Train on synthetic spans and check the result.

    Args:
        config: Shapes.
        progress: Told of updates done.

    Returns:
        `passed`, `rows` (check, must, found, passed), losses, seconds, tokens_per_s.

    Raises:
        NumericsError: A check failed; all that failed are named.
    """
    figures, checks = measure(config, progress)
    failed = [c for c in checks if not c.passed]
    if failed:
        found = "; ".join(f"{c.name}: {c.found}, not {c.must}" for c in failed)
        fix = "Fix the named part before training: its results would mean nothing."
        raise NumericsError("smoke", "pass every check", found, fix)
    return figures


def measure(config: SmokeConfig, progress: Progress = silent) -> tuple[dict[str, Any], list[Check]]:
    """Return figures and checks, whether they passed or not."""
    began = time.monotonic()
    trained = _train(config, progress)
    with torch.no_grad():
        checks = [*_learning(config, trained), *_parts(config, trained)]
    checks += [_sparse_is_masked(config), _chunked_is_plain(config, trained)]
    tokens = config.steps * config.windows * config.ctx_tokens
    figures = {
        "passed": all(c.passed for c in checks),
        "rows": [c._asdict() for c in checks],
        "losses": [round(loss, 4) for loss in trained.losses],
        "first_loss": trained.losses[0],
        "last_loss": trained.losses[-1],
        "steps": config.steps,
        "tokens_per_s": round(tokens / trained.seconds, 1),
        "seconds": round(time.monotonic() - began, 2),
        **trained.learner.device.describe(),
    }
    return figures, checks


def _train(config: SmokeConfig, progress: Progress) -> _Trained:
    table = synthetic_table(config.num_lang, config.seed)
    learner = _learner(config, table)
    began, losses, index_kls, dropped = time.monotonic(), list[float](), list[float](), 0
    smallest: dict[str, float] = {}
    alpha = torch.zeros(config.model.num_alphas)
    for step in range(config.steps):
        progress(step, config.steps, "smoke: updates")
        loops = config.loops[step >= config.growth_step]
        phase = Phase(config.ctx_tokens, loops, sparse=step % 2 == 1, micro_batches=1)
        stats = update(learner, _batch(config, table, step, learner.device), phase, step)
        losses.append(float(stats.sums.sum() / stats.counts.sum()))
        index_kls.append(float(stats.index_kl))
        dropped += int(stats.dropped)
        if _is_last_of_its_form(config, step):
            for name, norm in zip(learner.names, stats.norms.tolist(), strict=True):
                smallest[name] = min(norm, smallest.get(name, float("inf")))
            if learner.model.alpha.grad is not None:
                alpha = alpha.maximum(learner.model.alpha.grad.abs().cpu())
    seconds = time.monotonic() - began
    return _Trained(learner, table, losses, index_kls, dropped, smallest, alpha, seconds)


def _learner(config: SmokeConfig, table: Table) -> Learner:
    device = choose_device(config.device, "float32", config.threads)
    batch_tokens = config.windows * config.ctx_tokens
    train = TrainConfig(
        tokens=config.steps * batch_tokens,
        batch_tokens=batch_tokens,
        lengths=(LengthStage(from_frac=0.0, ctx_tokens=config.ctx_tokens),),
        micro_batches_large=1,
        loops=config.loops,
        lr=config.lr,
        seed=config.seed,
    )
    return new_learner(
        ArmConfig.parse({"tag": "smoke", "model": config.model, "train": train}, "smoke"),
        table,
        device,
    )


def _batch(config: SmokeConfig, table: Table, seed: int, device: Device) -> TokenBatch:
    spans = synthetic_spans(table.layout, config.windows, config.ctx_tokens, seed)
    ids = torch.from_numpy(spans).to(device.device)
    return TokenBatch(ids[:, :-1], ids[:, 1:], None)


def _is_last_of_its_form(config: SmokeConfig, step: int) -> bool:
    return step + 2 >= config.steps or config.growth_step - 2 <= step < config.growth_step


def _learning(config: SmokeConfig, trained: _Trained) -> Iterator[Check]:
    yield Check("row sets", "0 targets outside", f"{trained.dropped}", trained.dropped == 0)
    bad = [n for n, norm in trained.gradients.items() if not 0 < norm < float("inf")]
    found = ", ".join(bad) or f"{len(trained.gradients)} tensors, all"
    yield Check("gradients", "finite and not zero in every form", found, not bad)
    taken = list(boundary_alphas(config.model, config.loops[1]))
    used = trained.alpha_gradients[taken]
    unused = trained.alpha_gradients.index_fill(0, torch.tensor(taken), 0.0)
    alphas = bool((used > 0).all() and (unused == 0).all())
    found = f"{int((used > 0).sum())} used, {int((unused > 0).sum())} unused"
    yield Check("boundary", f"a gradient at {config.loops[1]} alphas, none beyond", found, alphas)
    last = trained.losses[-_LAST_STEPS:]
    fall = trained.losses[0] - sum(last) / len(last)
    must = f"at least {config.loss_fall:g} nats"
    found = f"{trained.losses[0]:.3f} -> {sum(last) / len(last):.3f}"
    yield Check("loss falls", must, found, fall >= config.loss_fall)
    moved = (trained.learner.model.alpha - config.model.alpha_init)[taken].abs()
    smallest = float(moved.min())
    yield Check("alpha moved", "more than 0 each", f"{smallest:.2e} at least", smallest > 0)
    low, high = min(trained.index_kls), max(trained.index_kls)
    yield Check("index KL", "finite, positive", f"{low:.4f} to {high:.4f}", 0 < low <= high < 1e3)


def _parts(config: SmokeConfig, trained: _Trained) -> Iterator[Check]:
    model, device = trained.learner.model, trained.learner.device
    model.eval()
    ids = _batch(config, trained.table, 0, device).ids[:1]
    outs = {loops: model(ids, loops).hidden for loops in config.loops}
    apart = float((outs[config.loops[0]] - outs[config.loops[1]]).abs().max())
    yield Check("loops count", "other features", f"differ by {apart:.3f}", apart > 0)
    values = [
        len(torch.unique(ternary(m.weight)))
        for m in model.modules()
        if isinstance(m, TernaryWeight)
    ]
    found = f"{len(values)} matrices, {min(values)} to {max(values)}"
    yield Check("ternary weights", "exactly 3 values", found, set(values) == {3})
    hidden = outs[config.loops[1]][0]
    most = _most_levels(int8_parts(hidden)[0])
    yield Check("int8 activations", "at most 255 levels", f"{most}", 2 < most <= 255)
    limit = 2**config.model.kv_bits - 1
    heads = key_value(hidden.unflatten(-1, (-1, 32)), config.model.kv_bits).flatten(0, 1)
    most = _most_levels(heads)
    yield Check("int4 keys and values", f"at most {limit} levels", f"{most}", 2 < most <= limit)


def _most_levels(rows: Tensor) -> int:
    """Return the most distinct values in any row of (N, width)."""
    ranked = rows.sort(-1).values
    return 1 + int((ranked[:, 1:] != ranked[:, :-1]).sum(-1).max())


def _sparse_is_masked(config: SmokeConfig) -> Check:
    """Compare both forms of sparse attention, values and gradients, in float64."""
    model, generator = config.model, torch.Generator().manual_seed(config.seed)
    tokens, block = config.ctx_tokens // 2 - 3, max(1, config.ctx_tokens // 16)
    groups, width, top = model.kv_heads, model.head_width, 2

    def draw(heads: int) -> Tensor:
        shape = (1, tokens, heads, width)
        return torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()

    query, key, value = draw(model.heads), draw(groups), draw(groups)
    index = torch.randn(2, 1, tokens, model.index_width, generator=generator)
    chosen = select_blocks(index[0], index[1], block, top)
    masked = _masked_attention(query, key, value, chosen.repeat_interleave(block, 2))
    sparse = sparse_attention(query, key, value, chosen, block, top)
    slopes = [torch.autograd.grad((out**2).sum(), (query, key, value)) for out in (masked, sparse)]
    pairs = [(masked, sparse), *zip(*slopes, strict=True)]
    apart = max(float(((a - b).abs().max() / a.abs().max()).detach()) for a, b in pairs)
    everything = -(-tokens // block) * (-(-tokens // block) + 1) / 2 * block
    fewer = int(chosen.sum()) < everything
    # 1e-12: float64 sums of another order; and something must have been left out
    passed = apart < 1e-12 and fewer
    return Check("sparse = masked", "equal to 1e-12", f"{apart:.1e}", passed)


def _masked_attention(query: Tensor, key: Tensor, value: Tensor, read_BTT: Tensor) -> Tensor:
    tokens = query.shape[1]
    read = read_BTT[:, None, :, :tokens].tril()
    out = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=read,
        enable_gqa=True,
    )
    return out.transpose(1, 2).flatten(2)


def _chunked_is_plain(config: SmokeConfig, trained: _Trained) -> Check:
    """Compare the fused loss, and its gradient, with a plain softmax over each kind's rows."""
    learner, table = trained.learner, trained.table
    batch = _batch(config, table, 0, learner.device)
    ids, targets = batch.ids[:1], batch.targets[:1]
    with torch.no_grad():
        features = learner.model(ids, config.loops[1]).hidden
    hidden = features.clone().requires_grad_()
    losses = [
        learner.readout.loss(hidden, ids, targets).total,
        _plain_loss(table, hidden, ids, targets),
    ]
    slopes = [torch.autograd.grad(loss, hidden)[0] for loss in losses]
    apart = abs(float(((losses[0] - losses[1]) / losses[1]).detach()))
    slope_apart = float((slopes[0] - slopes[1]).norm() / slopes[1].norm())
    # 1e-5: float32 sums over 16,000 rows in another order
    passed = apart < 1e-5 and slope_apart < 1e-5
    found = f"{apart:.1e}, its gradient {slope_apart:.1e}"
    return Check("chunked loss = plain", "equal to 1e-5", found, passed)


def _plain_loss(table: Table, hidden: Tensor, ids: Tensor, targets: Tensor) -> Tensor:
    kinds = next_kinds(ids, table.layout)
    signs = torch.from_numpy(table.signs()).to(hidden.device)
    bias = torch.from_numpy(table.bias).to(hidden.device)
    total = hidden.new_zeros(())
    row_kinds = torch.from_numpy(table.layout.kind_of_rows()).to(hidden.device)
    row_kinds[table.layout.marks["image"] :] = _EVERY_KIND
    for index in range(len(KINDS)):
        members = ((row_kinds == index) | (row_kinds == _EVERY_KIND)).nonzero()[:, 0]
        here = kinds == index
        logits = hidden[here] @ signs[members].t() * BITS**-0.5 + bias[members]
        places = torch.searchsorted(members, targets[here])
        total = total + torch.nn.functional.cross_entropy(logits, places, reduction="sum")
    return total / targets.numel()


def print_checks(checks: list[Check], figures: dict[str, Any]) -> None:
    """Draw the checks as a table on the terminal."""
    shown = RichTable("check", "must", "found", "", title="smoke")
    for check in checks:
        mark = "[green]ok[/]" if check.passed else "[bold red]FAILED[/]"
        shown.add_row(check.name, check.must, check.found, mark)
    shown.caption = f"{figures['seconds']} s, {figures['tokens_per_s']:.0f} tokens/s"
    Console().print(shown)


def main() -> int:
    """Run the check with its default shapes; 1 where something failed."""
    figures, checks = measure(SmokeConfig())
    print_checks(checks, figures)
    return 0 if figures["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
