"""The memory's formula, its place in the body, and that the first step is the identity."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from shadow_model.errors import ConfigError
from shadow_model.nn.carry import empty_carry
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.engram import Engram
from shadow_model.nn.functional import rms
from shadow_model.nn.model import Shadow, body_parameters
from shadow_model.table.synthetic import synthetic_spans, synthetic_table

TABLE = synthetic_table(64, 61)
PLAIN = ModelConfig(
    width=32, heads=4, prelude=1, core=1, coda=1, index_block=16, index_top=2, num_query_positions=5
)
CONFIG = PLAIN.replace(engram_entries=1024, engram_width=64)
IDS = torch.from_numpy(synthetic_spans(TABLE.layout, 2, 100, 62))[:, :-1]


class _Operators(TorchDispatchMode):
    """Remembers which operators ran."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def _fill(model: Shadow) -> Shadow:
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("rows.weight", "conv")):
                parameter.normal_(generator=generator)
    model.refresh()
    return model.eval()


def _slots(model: Shadow, ids: Tensor) -> Tensor:
    slots = model._recall(ids, None)._slots
    assert slots is not None
    return slots


@pytest.mark.parametrize("places", [("pre",), ("post",), ("pre", "post")])
@pytest.mark.parametrize("flat", [0, 3])
def test_the_first_step_is_the_identity(places: tuple[str, ...], flat: int) -> None:
    config = CONFIG.replace(engram_places=places, flat=flat)
    plain, model = Shadow(PLAIN.replace(flat=flat), TABLE), Shadow(config, TABLE)
    weights = model.state_dict()
    assert all(torch.equal(weights[n], t) for n, t in plain.state_dict().items())
    assert set(body_parameters(model)) == set(body_parameters(plain))
    assert torch.equal(plain(IDS).hidden, model(IDS).hidden)
    for engram in model.engrams:  # also with a convolution that has learnt
        torch.nn.init.normal_(engram.conv)
    assert torch.equal(plain(IDS).hidden, model(IDS).hidden)


def test_rows_learn_from_the_first_step_on() -> None:
    model = Shadow(CONFIG, TABLE)
    model(IDS).hidden.square().sum().backward()
    for engram in model.engrams:
        assert engram.rows.weight.grad is not None
        assert engram.rows.weight.grad.coalesce().values().abs().sum() > 0


@torch.no_grad()
def test_the_formula_stated_position_by_position() -> None:
    config = CONFIG.replace(quantise=False)
    model = _fill(Shadow(config, TABLE).double())
    engram, slots = model.engrams[1], _slots(model, IDS)[1]
    assert isinstance(engram, Engram)
    x = torch.randn(2, 100, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    e = engram.rows(slots).flatten(2)
    key, value = e @ engram.key.weight.T, e @ engram.value.weight.T
    expected = torch.empty_like(x)
    for b in range(2):
        gated: list[Tensor] = []
        for t in range(x.shape[1]):
            match = float(rms(x[b, t]) @ rms(key[b, t])) / math.sqrt(32)
            root = math.copysign(math.sqrt(max(abs(match), 1e-6)), match)
            gated.append(value[b, t] / (1 + math.exp(-root)))
            mixed = torch.zeros(32, dtype=torch.float64)
            for tap in range(4):
                if t >= 3 * tap:
                    mixed += engram.conv[tap] * rms(gated[t - 3 * tap])
            expected[b, t] = x[b, t] + gated[t] + mixed * mixed.sigmoid()
    torch.testing.assert_close(engram(x, slots), expected, rtol=1e-10, atol=1e-10)


def test_the_convolution_stays_in_its_document_where_told() -> None:
    model = _fill(Shadow(CONFIG, TABLE))
    engram, x = model.engrams[0], torch.randn(2, 40, 32, generator=torch.Generator().manual_seed(2))
    slots = _slots(model, IDS[:, :40])[0]
    starts = torch.where(torch.arange(40) < 17, 0, 17).expand(2, -1)
    apart = engram(x, slots, starts)
    assert torch.equal(apart[:, :17], engram(x, slots)[:, :17])
    assert torch.equal(apart[:, 17:], engram(x[:, 17:], slots[:, 17:]))


@pytest.mark.parametrize("flat", [0, 3])
def test_memories_are_read_after_the_prelude_and_at_the_end(flat: int) -> None:
    model = _fill(Shadow(CONFIG.replace(flat=flat, prelude=2), TABLE))
    seen: list[str] = []
    groups = ["blocks"] if flat else ["pre", "core", "coda"]
    for group in groups:
        for i, block in enumerate(getattr(model, group)):
            block.register_forward_hook(lambda *_, name=f"{group}.{i}": seen.append(name))
    for i, engram in enumerate(model.engrams):
        recall = engram.recall
        engram.recall = lambda *a, i=i, f=recall: (seen.append(f"engram.{i}"), f(*a))[1]
    model(IDS, loops=2)
    looped = ["pre.0", "pre.1", "engram.0", "core.0", "core.0", "coda.0", "engram.1"]
    untied = ["blocks.0", "blocks.1", "engram.0", "blocks.2", "engram.1"]
    assert seen == (untied if flat else looped)


def test_the_loop_enters_with_what_the_memory_added() -> None:
    """e is the residual after the memory, so a core of nothing but the boundary keeps it."""
    model = _fill(Shadow(CONFIG.replace(engram_places=("pre",)), TABLE))
    entries: list[Tensor] = []
    model.core[0].register_forward_pre_hook(lambda _, args: entries.append(args[0]))
    model(IDS, loops=2)
    block_out = model.core[0](entries[0], *_rest(model))[0]
    alpha = model.alpha[0]
    torch.testing.assert_close(entries[1], rms(block_out) + alpha * entries[0])


def _rest(model: Shadow) -> tuple[object, ...]:
    calls: list[tuple[object, ...]] = []
    handle = model.core[0].register_forward_pre_hook(lambda _, args: calls.append(args[1:]))
    model(IDS, loops=1)
    handle.remove()
    return calls[0]


@pytest.mark.parametrize("flat", [0, 3])
def test_outputs_are_causal(flat: int) -> None:
    model = _fill(Shadow(CONFIG.replace(flat=flat), TABLE))
    other = IDS.clone()
    other[:, 60] = (other[:, 60] + 1) % 64
    changed = (model(IDS).hidden != model(other).hidden).any(-1)
    assert not changed[:, :60].any()
    assert changed[:, 60].all()


@pytest.mark.parametrize("confined", [True, False])
def test_documents_stay_apart_where_attention_does(confined: bool) -> None:
    model = _fill(Shadow(CONFIG.replace(document_attention=confined), TABLE))
    ids = torch.randint(64, (1, 60), generator=torch.Generator().manual_seed(8))
    ids[0, 30] = TABLE.layout.marks["sep"]
    other = ids.clone()
    other[0, :30] = (other[0, :30] + 1) % 64
    after = [model(one).hidden[0, 31:] for one in (ids, other)]
    assert torch.equal(*after) == confined


@pytest.mark.parametrize("flat", [0, 3])
@pytest.mark.parametrize("sizes", [[1, 2, 3, 30, 64], [50, 50], [9, 1, 90]])
def test_chunks_give_what_the_whole_gives(flat: int, sizes: list[int]) -> None:
    model = _fill(Shadow(CONFIG.replace(flat=flat), TABLE))
    carry, outs = empty_carry(2, 2), []
    with torch.no_grad():
        for part in IDS.split(sizes, 1):
            out = model(part, carry=carry)
            assert out.carry is not None
            carry = out.carry
            outs.append(out.hidden)
        # a chunk's products have other shapes, which may round otherwise
        torch.testing.assert_close(torch.cat(outs, 1), model(IDS).hidden, rtol=1e-5, atol=1e-5)
    assert [t.shape for t in carry.memories] == [(2, 9, 32)] * 2


def test_canonical_ids_decide_what_is_looked_up() -> None:
    canonical = torch.arange(TABLE.num_rows).numpy().copy()
    canonical[1] = 0
    model = Shadow(CONFIG, TABLE, canonical=canonical)
    first, second = torch.tensor([[5, 0, 7]]), torch.tensor([[5, 1, 7]])
    assert torch.equal(_slots(model, first), _slots(model, second))
    alone = Shadow(CONFIG, TABLE)
    assert not torch.equal(_slots(alone, first), _slots(alone, second))
    copy = Shadow(CONFIG, TABLE, seed=9)
    copy.load_state_dict(model.state_dict())  # canonical ids and multipliers are of the weights
    assert torch.equal(_slots(copy, IDS), _slots(model, IDS))
    with pytest.raises(ConfigError, match="canonical"):
        Shadow(CONFIG, TABLE, canonical=canonical[:-1])


def test_slots_are_looked_up_once_for_both_memories_whatever_the_loops() -> None:
    model = _fill(Shadow(CONFIG, TABLE))
    seen = _Operators()
    with seen:
        model(IDS, loops=4)
    assert seen.names.count("aten::bitwise_xor.Tensor") == 2  # a bigram's, a trigram's


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"engram_entries": 100}, "0 or at least 1024"),
        ({"engram_width": 40}, "divisible by 16"),
        ({"engram_places": ("post", "pre")}, "pre first"),
        ({"flat": 1}, "must exceed prelude"),
    ],
)
def test_shapes_that_cannot_be_are_refused(fields: dict[str, object], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        CONFIG.replace(**fields)
    PLAIN.replace(**{k: v for k, v in fields.items() if k != "engram_entries"})  # without: unused
