"""The whole model: names, growth, freshness, copies, compiled graphs."""

import copy

import pytest
import torch
from torch import Tensor

from shadow_model.errors import ConfigError, NumericsError
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.model import Shadow, body_parameters, num_body_parameters
from shadow_model.table.synthetic import synthetic_spans, synthetic_table

TABLE = synthetic_table(64, 61)
CONFIG = ModelConfig(
    width=32, heads=4, prelude=1, core=1, coda=1, index_block=16, index_top=2, num_query_positions=5
)
IDS = torch.from_numpy(synthetic_spans(TABLE.layout, 2, 100, 62))[:, :-1]
POSITIONS = torch.tensor([16, 40, 80, 99])


def test_state_names_are_the_checkpoints() -> None:
    parts = ("q", "k", "v", "o", "f1", "f2", "f3", "iq", "ik")
    blocks = [f"{g}.0.{p}.weight" for g in ("pre", "core", "coda") for p in parts]
    expected = {"alpha", "inp.weight", "out_proj.weight", *blocks}
    assert set(Shadow(CONFIG, TABLE).state_dict()) == expected


def test_full_shape_has_the_stated_parameters() -> None:
    assert num_body_parameters(Shadow(ModelConfig(), TABLE)) == 27_716_616
    small = Shadow(CONFIG, TABLE)
    assert set(body_parameters(small)) == set(dict(small.named_parameters()))


def test_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = Shadow(CONFIG, TABLE, seed=3).state_dict()
    torch.manual_seed(2)
    second, other = Shadow(CONFIG, TABLE, seed=3).state_dict(), Shadow(CONFIG, TABLE, seed=4)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["inp.weight"], other.inp.weight)


def test_output_shapes_and_index_losses() -> None:
    model = Shadow(CONFIG, TABLE)
    out = model(IDS, loops=3)
    assert out.hidden.shape == (2, 100, 512)
    assert out.index_kl.shape == (5,)
    assert (out.index_kl > 0).all()
    assert model(IDS[:, :31]).index_kl is None  # shorter than two key blocks
    assert model.eval()(IDS).index_kl is None


def test_positions_of_one_row_serve_all_calls() -> None:
    model = Shadow(CONFIG, TABLE)
    shared = model(IDS, query_positions=POSITIONS).index_kl
    assert torch.equal(shared, model(IDS, query_positions=POSITIONS.expand(4, -1)).index_kl)
    with pytest.raises(ConfigError, match="a row for each of 4 block calls"):
        model(IDS, query_positions=POSITIONS.expand(3, -1))


@pytest.mark.parametrize("sparse", [False, True])
def test_is_causal(sparse: bool) -> None:
    model = Shadow(CONFIG.replace(quantise=False), TABLE).double().eval()
    changed = IDS.clone()
    changed[:, 70:] = 1
    with torch.no_grad():
        before, after = (model(ids, sparse=sparse).hidden for ids in (IDS, changed))
    # 1e-12: the order of sums within a tile
    torch.testing.assert_close(before[:, :70], after[:, :70], rtol=0, atol=1e-12)
    assert not torch.allclose(before[:, 70:], after[:, 70:], atol=1e-3)


def test_loops_and_sparsity_are_no_state() -> None:
    model = Shadow(CONFIG, TABLE).eval()
    with torch.no_grad():
        first = model(IDS, loops=2).hidden
        other = model(IDS, loops=4, sparse=True).hidden
        assert torch.equal(model(IDS, loops=2).hidden, first)
    assert not torch.equal(first, other)


def test_flat_ignores_the_loop_count() -> None:
    model = Shadow(CONFIG.replace(flat=2), TABLE).eval()
    with torch.no_grad():
        assert torch.equal(model(IDS, loops=1).hidden, model(IDS, loops=7).hidden)


def test_too_many_loops_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_alphas"):
        Shadow(CONFIG, TABLE)(IDS, loops=9)


@pytest.mark.parametrize("form", [{"foreach": False}, {"foreach": True}, {"fused": True}])
def test_stale_weights_are_refused_after_any_optimiser(form: dict[str, bool]) -> None:
    model = Shadow(CONFIG, TABLE)
    optimizer = torch.optim.AdamW(model.parameters(), **form)
    model(IDS).hidden.sum().backward()
    optimizer.step()
    with pytest.raises(NumericsError, match="refresh"):
        model(IDS)
    model.refresh()
    model(IDS)


def test_loading_casting_and_copying_refresh() -> None:
    model, other = Shadow(CONFIG, TABLE, seed=1).eval(), Shadow(CONFIG, TABLE, seed=2).eval()
    with torch.no_grad():
        expected = other(IDS).hidden
        model.load_state_dict(other.state_dict())
        assert torch.equal(model(IDS).hidden, expected)
        assert torch.equal(copy.deepcopy(model)(IDS).hidden, expected)
        assert model.double()(IDS).hidden.dtype == torch.float64


@pytest.mark.parametrize("sparse", [False, True])
def test_compiles_into_one_graph(sparse: bool) -> None:
    model = Shadow(CONFIG.replace(prelude=0, coda=0), TABLE).double()
    results = []
    for run in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        out = run(IDS, loops=2, sparse=sparse, query_positions=POSITIONS)
        (out.hidden.square().mean() + out.index_kl.sum()).backward()
        gradients: list[Tensor] = [p.grad.clone() for p in model.parameters()]
        results.append((out.hidden.detach(), gradients))
        model.zero_grad()
    # 1e-5: index scores are float32 and sum in another order; all else is float64
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-6)


def test_a_weight_that_is_nan_is_not_called_stale() -> None:
    model = Shadow(CONFIG, TABLE)
    with torch.no_grad():
        model.inp.weight.fill_(torch.nan)
    with pytest.raises(NumericsError, match="refresh"):
        model(IDS)
    model.refresh()
    assert model(IDS).hidden.isnan().all()


@pytest.mark.parametrize("sparse", [False, True])
def test_a_document_reads_as_if_it_stood_alone(sparse: bool) -> None:
    config = CONFIG.replace(quantise=False, index_top=4)
    model = Shadow(config, TABLE).double().eval()
    ids = torch.cat([IDS[:1, :48], IDS[1:, :50]], 1)
    ids[ids == TABLE.layout.marks["sep"]] = 1
    ids[0, 47] = TABLE.layout.marks["sep"]
    free = Shadow(config.replace(document_attention=False), TABLE).double().eval()
    with torch.no_grad():
        whole, alone = model(ids, sparse=sparse).hidden, model(ids[:, 48:], sparse=sparse).hidden
        across = free(ids, sparse=sparse).hidden
    # 1e-4: the rotary angles are float32, and relative only up to their rounding
    torch.testing.assert_close(whole[:, 48:], alone, rtol=0, atol=1e-4)
    assert not torch.allclose(across[:, 48:], alone, atol=1e-2)
    torch.testing.assert_close(whole[:, :48], across[:, :48], rtol=0, atol=1e-12)
