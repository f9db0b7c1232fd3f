"""The model against the golden runs: kinds, one block, features, losses, index losses, gradients.

Tolerances. In float64 without quantisers only the order of sums differs: 1e-12 on features; what is
float32 there (index scores, the loss, and the gradients through them) agrees to 1e-6 and 1e-5. With
quantisers, a sum taken in another order moves single values over a rounding step, and such steps
cascade through the blocks: 1e-2 relative on features, 1e-3 on the loss, 2e-4 on the index losses,
and 0.2 / 0.03 on the worst and the median gradient tensor. One block has no room to cascade: with
float products it equals a plain restatement in torch's own operators to 1e-6 on any processor, and
the golden files to 1e-5 on one that sums as theirs did (where the restatement does so itself);
elsewhere, and with integer products, to 1e-3.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from shadow_model.nn.block import Block
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.functional import rms, rotary_angles
from shadow_model.nn.kinds import next_kinds
from shadow_model.nn.linear import TernaryWeight
from shadow_model.nn.model import ModelOutput, Shadow
from shadow_model.nn.readout import Loss, Readout
from shadow_model.table.layout import KINDS
from shadow_model.table.store import Table
from shadow_model.table.synthetic import synthetic_table

GOLDEN = Path(__file__).parent / "golden"
CASES = json.loads((GOLDEN / "cases.json").read_text())
NAMES = ("loop_small", "loop_gqa_ragged", "flat_small")
RUNS = [(name, run) for name in NAMES for run in CASES[name]["runs"]]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Run a test on one thread: the operators are too small for more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Bounds(NamedTuple):
    features: float
    index_kl: float
    loss: float
    worst_gradient: float
    median_gradient: float


FLOAT64 = Bounds(1e-12, 1e-6, 1e-5, 1e-5, 1e-5)
QUANTISED = Bounds(1e-2, 2e-4, 1e-3, 0.2, 0.03)


OTHER_SUMS = QUANTISED._replace(worst_gradient=0.4)
"""On a processor whose float products sum otherwise: measured 0.26, all else within the bounds."""


@cache
def case_table(name: str) -> Table:
    stated = CASES[name]["table"]
    table = synthetic_table(stated["n_lang"], CASES[name]["table_seed"], stated["ctrl_names"])
    assert table.layout.offsets == stated["off"]
    assert table.layout.marks == stated["marks"]
    return table


@cache
def case_readout(name: str) -> Readout:
    return Readout(case_table(name), strict=True)


def case_model(name: str, **choices: Any) -> tuple[Shadow, dict[str, Tensor]]:
    case = CASES[name]
    shape = {"width" if key == "d" else key: value for key, value in case["config"].items()}
    index = {"index_block": case["index_block"], "index_top": case["index_top"]}
    own = {"coda_alpha": False, "index_teacher": "dense", "document_attention": False}
    model = Shadow(ModelConfig(**shape, **index, **own, **choices), case_table(name))
    arrays = load_file(GOLDEN / f"{name}.safetensors")
    state = {key.removeprefix("state."): t for key, t in arrays.items() if key.startswith("state.")}
    model.load_state_dict(state)
    return model, arrays


def run_case(model: Shadow, arrays: dict[str, Tensor], name: str, run: str) -> tuple[Any, ...]:
    out: ModelOutput = model(
        arrays["x"],
        loops=int(run[1]),
        sparse=run.endswith("sparse"),
        query_positions=arrays["query_positions"],
    )
    loss = case_readout(name).loss(out.hidden, arrays["x"], arrays["y"])
    assert out.index_kl is not None
    (loss.total + 0.1 * out.index_kl.mean()).backward()
    return out, loss


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found.detach() - expected).norm() / expected.norm())


def check_run(
    model: Shadow, run: str, out: ModelOutput, expected: dict[str, Tensor], bounds: Bounds
) -> None:
    assert relative(out.hidden[:, ::5], expected[f"{run}.features_every_5th"]) <= bounds.features
    assert out.index_kl is not None
    torch.testing.assert_close(
        out.index_kl, expected[f"{run}.index_kl"], rtol=0, atol=bounds.index_kl
    )
    parameters = dict(model.named_parameters())
    errors = sorted(
        relative(parameters[key.removeprefix(f"{run}.grad.")].grad, gradient)
        for key, gradient in expected.items()
        if key.startswith(f"{run}.grad.")
    )
    if errors:
        assert len(errors) == len(parameters)
        assert errors[-1] <= bounds.worst_gradient
        assert errors[len(errors) // 2] <= bounds.median_gradient


def check_kinds(loss: Loss, expected: list[list[float]], mean_bound: float) -> None:
    for kind, (nats, count) in zip(KINDS, expected, strict=True):
        found_nats, found_count = loss.by_kind[kind]
        assert int(found_count) == count
        assert abs(float(found_nats) - nats) <= mean_bound * count


@pytest.mark.parametrize(("name", "run"), RUNS)
def test_structure_equals_golden_in_float64(name: str, run: str) -> None:
    model, arrays = case_model(name, quantise=False)
    out, loss = run_case(model.double(), arrays, name, run)
    check_run(model, run, out, load_file(GOLDEN / f"{name}_float64.safetensors"), FLOAT64)
    stated = CASES["float64_quantisers_off"][name][run]
    assert abs(float(loss.total.detach()) - stated["lm_loss"]) <= FLOAT64.loss
    assert abs(float(out.index_kl.detach().mean()) - stated["index_kl_mean"]) <= FLOAT64.index_kl


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize(("name", "run"), RUNS)
def test_quantised_model_equals_golden(name: str, run: str, integer: bool) -> None:
    model, arrays = case_model(name, integer_products=integer)
    out, loss = run_case(model, arrays, name, run)
    bounds = QUANTISED if sums_as_golden(model, arrays) else OTHER_SUMS
    check_run(model, run, out, arrays, bounds)
    stated = CASES[name]["runs"][run]
    assert abs(float(loss.total.detach()) - stated["lm_loss"]) <= QUANTISED.loss
    # a kind has a tenth of the tokens: its mean may move ten times as far as the total's
    check_kinds(loss, stated["per_kind_sum_count"], 10 * QUANTISED.loss)


def plain_block(block: Block, x: Tensor, sparse: bool) -> Tensor:
    """Restate a block in torch's own operators, float products of quantised operands."""
    config, tokens = block.config, x.shape[1]

    def linear(part: TernaryWeight, given: Tensor) -> Tensor:
        scale = (given.abs().amax(-1, keepdim=True).clamp_min(1e-6)) / 127
        levels = (given / scale).round().clamp(-127, 127) * scale
        size = part.weight.abs().mean().clamp_min(1e-8)
        return F.linear(levels, (part.weight / size).round().clamp(-1, 1) * size)

    def heads(given: Tensor) -> Tensor:
        return given.unflatten(-1, (-1, config.head_width)).transpose(1, 2)

    def rotated(given: Tensor) -> Tensor:
        one, two = given.chunk(2, -1)
        cos, sin = (t.transpose(0, 1) for t in rotary_angles(tokens, config.head_width, 1e5))
        return torch.cat([one * cos - two * sin, one * sin + two * cos], -1)

    def kept(given: Tensor) -> Tensor:
        scale = given.abs().amax(-1, keepdim=True).clamp_min(1e-8)
        return (given / scale * 7).round().clamp(-7, 7) * scale / 7

    h = rms(x)
    query, key = rotated(heads(linear(block.q, h))), kept(rotated(heads(linear(block.k, h))))
    value, causal = kept(heads(linear(block.v, h))), torch.ones(tokens, tokens).tril().bool()
    mask = causal
    if sparse:
        branch = (linear(part, h) for part in (block.iq, block.ik))
        mask = causal & read_blocks(*branch, causal, config.index_block, config.index_top)
        mask = mask.unsqueeze(1)
    attended = F.scaled_dot_product_attention(
        query, key, value, None if mask is causal else mask, is_causal=mask is causal,
        enable_gqa=True,
    )  # fmt: skip
    x = rms(x + linear(block.o, attended.transpose(1, 2).flatten(2)))
    h = rms(x)
    return rms(x + linear(block.f2, F.silu(linear(block.f1, h)) * linear(block.f3, h)))


def read_blocks(query: Tensor, key: Tensor, causal: Tensor, size: int, top: int) -> Tensor:
    """Return (B, T, T) bool: the own key block, and the best of those past."""
    tokens = query.shape[1]
    own = torch.arange(tokens) // size
    scores = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(~causal, -torch.inf)
    blocks = F.pad(scores, (0, -tokens % size), value=-torch.inf)
    best = blocks.unflatten(-1, (-1, size)).amax(-1)
    past = torch.arange(best.shape[-1]) < own[:, None]
    order = best.masked_fill(~past, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    chosen = torch.zeros_like(best, dtype=torch.bool).scatter(-1, order[..., :top], True) & past
    chosen |= torch.arange(best.shape[-1]) == own[:, None]
    return chosen.repeat_interleave(size, -1)[..., :tokens]


@torch.no_grad()
def sums_as_golden(model: Shadow, arrays: dict[str, Tensor]) -> bool:
    """Tell whether a plain block, on this processor, gives what the golden files hold."""
    block = model.blocks[0] if model.config.flat else model.core[0]
    assert isinstance(block, Block)
    plain = plain_block(block, arrays["block.in"], sparse=False)
    return relative(plain, arrays["block.out_dense"]) <= 1e-5


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_one_block_equals_golden(name: str, sparse: bool, integer: bool) -> None:
    model, arrays = case_model(name, integer_products=integer)
    block = model.blocks[0] if model.config.flat else model.core[0]
    assert isinstance(block, Block)
    config, x = model.config, arrays["block.in"]
    rotary = rotary_angles(x.shape[1], config.head_width, config.rope_base)
    with torch.no_grad():
        found, _ = block(x, rotary, sparse, None)
        plain = plain_block(block, x, sparse)
    golden = arrays[f"block.out_{'sparse' if sparse else 'dense'}"]
    if not integer:
        assert relative(found, plain) <= 1e-6
    like_golden = relative(plain, golden) <= 1e-5  # this processor sums in the golden one's order
    assert relative(found, golden) <= (1e-5 if like_golden and not integer else 1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_kinds_equal_golden(name: str) -> None:
    arrays = load_file(GOLDEN / f"{name}.safetensors")
    kinds = next_kinds(arrays["x"], case_table(name).layout)
    assert torch.equal(kinds.long(), arrays["kinds"])
