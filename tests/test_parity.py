"""The model against the golden runs: kinds, one block, features, losses, index losses, gradients.

Tolerances. In float64 without quantisers only the order of sums differs: 1e-12 on features; what is
float32 there (index scores, the loss, and the gradients through them) agrees to 1e-6 and 1e-5. With
quantisers, a sum taken in another order moves single values over a rounding step, and such steps
cascade through the blocks: 1e-2 relative on features, 1e-3 on the loss, 2e-4 on the index losses,
and 0.2 / 0.03 on the worst and the median gradient tensor. One block has no room to cascade: 1e-5
where its products are the float ones, 1e-3 where they are integer ones.
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

from shadow_model.nn.config import ModelConfig
from shadow_model.nn.functional import rotary_angles
from shadow_model.nn.kinds import next_kinds
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
    check_run(model, run, out, arrays, QUANTISED)
    stated = CASES[name]["runs"][run]
    assert abs(float(loss.total.detach()) - stated["lm_loss"]) <= QUANTISED.loss
    # a kind has a tenth of the tokens: its mean may move ten times as far as the total's
    check_kinds(loss, stated["per_kind_sum_count"], 10 * QUANTISED.loss)


@pytest.mark.parametrize(("integer", "bound"), [(False, 1e-5), (True, 1e-3)])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_one_block_equals_golden(name: str, sparse: bool, integer: bool, bound: float) -> None:
    model, arrays = case_model(name, integer_products=integer)
    block = model.blocks[0] if model.config.flat else model.core[0]
    config, x = model.config, arrays["block.in"]
    rotary = rotary_angles(x.shape[1], config.head_width, config.rope_base)
    with torch.no_grad():
        found, _ = block(x, rotary, sparse, None)
    assert relative(found, arrays[f"block.out_{'sparse' if sparse else 'dense'}"]) <= bound


@pytest.mark.parametrize("name", NAMES)
def test_kinds_equal_golden(name: str) -> None:
    arrays = load_file(GOLDEN / f"{name}.safetensors")
    kinds = next_kinds(arrays["x"], case_table(name).layout)
    assert torch.equal(kinds.long(), arrays["kinds"])
