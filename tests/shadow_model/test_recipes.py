"""Recipes: the full run's numbers, recipe files, overrides, and what is refused."""

from pathlib import Path

import pytest

from shadow_model.data.inputs import SourceInput
from shadow_model.errors import ConfigError, DataError
from shadow_model.nn.config import num_block_calls
from shadow_model.recipes import FURTHER_ARMS, RECIPES, flat_boundary, full, load, reference, tiny
from shadow_model.train.schedule import growth_step

OWN = (SourceInput(name="books", kind="text", path=Path("books")),)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_a_valid_run(name: str) -> None:
    run = RECIPES[name](OWN)
    assert run.name == name
    assert run.sources.inputs == OWN


def test_the_full_runs_numbers() -> None:
    run = full(OWN)
    model, train = run.proof.model, run.proof.train
    shape = (model.width, model.heads, model.kv_heads, model.prelude, model.core, model.coda)
    assert shape == (512, 8, 1, 2, 6, 2)
    assert train.loops == (2, 4)
    assert train.growth_at_frac == 0.6
    lengths = [(s.from_frac, s.ctx_tokens) for s in train.lengths]
    assert lengths == [(0.0, 2048), (0.92, 4096), (0.97, 8192)]
    assert (train.sparse_from_ctx_tokens, train.index_weight) == (4096, 0.1)
    assert (train.tokens, train.batch_tokens, train.lr) == (2_300_000_000, 16 * 2048, 3e-4)
    assert (train.micro_batches, train.micro_batches_large, train.seed) == (1, 2, 0)
    every = (train.log_every_steps, train.evaluate_every_steps, train.checkpoint_every_steps)
    assert every == (50, 1000, 2000)
    assert run.table.num_lang == 65_536
    memory = (model.engram_entries, model.engram_width, model.engram_places)
    assert memory == (8_000_000, 512, ("pre", "post"))
    assert train.engram_lr_factor == 5
    assert (train.max_epochs, train.hours) == (4, None)


def test_the_control_differs_by_one_replace() -> None:
    run = full(OWN)
    assert (run.control.tag, run.control.model.flat, run.control.train.tokens) == (
        "flat10",
        10,
        460_000_000,
    )
    assert run.control.model.replace(flat=0) == run.proof.model
    assert run.control.train.replace(tokens=run.proof.train.tokens) == run.proof.train


def test_the_reference_has_its_own_value_of_every_ablation_field() -> None:
    run, ours = reference(OWN), full(OWN)
    train = {"sampling": "random", "copy_alpha": False, "rewarm_steps": 0}
    model = {"integer_products": False, "coda_alpha": False, "index_teacher": "dense"}
    for arm in (run.proof, run.control):
        assert {name: getattr(arm.train, name) for name in train} == train
        assert {name: getattr(arm.model, name) for name in model} == model
    assert all(getattr(ours.proof.train, name) != value for name, value in train.items())
    assert all(getattr(ours.proof.model, name) != value for name, value in model.items())
    assert ours.proof.train.index_reduction == run.proof.train.index_reduction == "mean"


def test_further_arms_differ_in_what_their_names_say() -> None:
    run = full(OWN)
    boundary, fixed, matched = (FURTHER_ARMS[name](run) for name in FURTHER_ARMS)
    assert num_block_calls(boundary.model, boundary.train.loops[1]) == run.control.model.flat
    assert (boundary.model.flat, boundary.train.loops) == (0, (1, 1))
    assert boundary.train.tokens == run.control.train.tokens
    assert (fixed.train.loops, fixed.model) == ((2, 2), run.proof.model)
    assert growth_step(fixed.train) is growth_step(boundary.train) is None
    assert matched.replace(tag="flat10") == run.control
    tags = {arm.tag for arm in (boundary, fixed, matched, run.proof, run.control)}
    assert tags == {"proof", "flat10", "flat10_boundary", "flat10_matched", "loop2"}


def test_boundary_arm_needs_a_core() -> None:
    run = full(OWN)
    control = run.control.replace(model=run.control.model.replace(flat=4))
    with pytest.raises(ConfigError, match="core of 0 blocks"):
        flat_boundary(run.replace(control=control))


def test_seeds_and_arms_of_a_recipe_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('base = "tiny"\nseeds = 3\narms = ["loop_fixed", "flat_matched"]\n')
    run = load(file, seed=5)
    assert (run.seeds, run.arms) == (3, ("loop_fixed", "flat_matched"))
    third = run.with_seed(2)
    assert (third.proof.train.seed, third.control.train.seed) == (7, 7)
    assert FURTHER_ARMS["loop_fixed"](third).train.seed == 7
    file.write_text('base = "tiny"\narms = ["loop_fixed", "loop_fixed"]\n')
    with pytest.raises(ConfigError, match="name each once"):
        load(file)


def test_a_recipe_field_gives_both_arms_memories(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    memory = 'engram_entries = 4096\nengram_width = 64\nengram_places = ["post"]\n'
    file.write_text(f'base = "tiny"\n[proof.model]\n{memory}')
    run = load(file)
    for model in (run.proof.model, run.control.model):
        assert (model.engram_entries, model.engram_places) == (4096, ("post",))
        assert model.num_memories == 1
    assert tiny().proof.model.num_memories == 0


def test_full_wants_its_data_named() -> None:
    with pytest.raises(ConfigError, match="name its data"):
        load("full")


def test_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"be one of tiny.*'tinny'.*Did you mean 'tiny'"):
        load("tinny")


def test_overrides_reach_both_arms() -> None:
    base = tiny()
    run = load("tiny", tokens=2 * base.proof.train.tokens, seed=7, hours=0.5)
    assert run.proof.train.tokens == 2 * base.proof.train.tokens
    assert run.control.train.tokens == 2 * base.control.train.tokens
    assert {run.proof.train.seed, run.control.train.seed, run.smoke.seed} == {7}
    assert run.proof.train.hours == run.control.train.hours == 0.5
    assert run.sources == base.sources


def test_a_recipe_file_changes_single_fields(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        """
        base = "tiny"
        [[sources.inputs]]
        name = "books"
        kind = "text"
        path = "books"
        [proof.model]
        width = 64
        [control.train]
        tokens = 8192
        """
    )
    run, base = load(str(file)), tiny()
    assert run.name == "mine"
    assert run.sources.inputs[0].path == tmp_path / "books"
    assert run.sources.replace(inputs=base.sources.inputs) == base.sources
    assert run.proof == base.proof.replace(model=base.proof.model.replace(width=64))
    assert run.control.model == run.proof.model.replace(flat=4)
    assert run.control.train.tokens == 8192


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('base = "tiny"\n[proof.train]\ntokns = 1', r"proof|tokns.*did you mean 'tokens'"),
        ('base = "tiny"\n[tabel]\nseed = 1', r"unknown field 'tabel'.*did you mean 'table'"),
        ('base = "huge"', r"'huge'"),
        ("[proof.train]\ntokens = 8192", r"be one of tiny"),
        ("base = ", r"be a TOML recipe file"),
        ('base = "tiny"\n[pack]\nval_every = 7', r"val_every 11 and pack.val_every 7"),
        ('base = "tiny"\n[proof.train]\nbatch_tokens = 2000', r"batch_tokens 2000 must be div"),
    ],
)
def test_a_wrong_recipe_file_is_refused_by_name(tmp_path: Path, text: str, found: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=found) as error:
        load(file)
    assert "wrong.toml" in str(error.value)


def test_an_absent_recipe_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.toml")


def test_a_data_folder_replaces_the_inputs(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    run = load("full", data=tmp_path)
    assert [(i.kind, i.path) for i in run.sources.inputs] == [("text", tmp_path)]
    with pytest.raises(DataError, match="no such folder"):
        load("tiny", data=tmp_path / "none")


def test_a_check_of_the_model_needs_no_data_named() -> None:
    assert load("full", with_data=False).proof.model == full(OWN).proof.model


def test_paths_in_a_recipe_file_are_relative_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        'base = "tiny"\n[table]\nratings = "pairs.csv"\n'
        'codebooks = { image = "/abs/image.npy", audio = "audio.npy" }\n'
        '[sources]\npieces = "tokenizer.json"\n'
    )
    monkeypatch.chdir("/")
    run = load(path)
    assert run.table.ratings == tmp_path / "pairs.csv"
    assert run.table.codebooks == {
        "image": Path("/abs/image.npy"),
        "audio": tmp_path / "audio.npy",
    }
    assert run.sources.pieces == tmp_path / "tokenizer.json"
