"""Whole runs as functions, and how a recipe file changes one.

The control of each is one `replace` of its proof: the difference reads in `flat_control`.

A recipe file is TOML; it names a recipe to start from and the fields it changes:

    base = "small"
    [[sources.inputs]]
    name = "books"
    kind = "text"
    path = "books/"
    [proof.train]
    tokens = 100_000_000
"""

import difflib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar, get_args

from shadow_model.config import FurtherArm, RunConfig
from shadow_model.data.folder import folder_inputs
from shadow_model.data.inputs import SourceInput, SourcesConfig
from shadow_model.data.pack import PackConfig
from shadow_model.errors import ConfigError
from shadow_model.nn.config import ModelConfig
from shadow_model.reading import parse_toml, read_bounded, reading
from shadow_model.report.config import ReportConfig
from shadow_model.schema import Schema
from shadow_model.speed import SpeedConfig
from shadow_model.table.config import TableConfig
from shadow_model.train.config import ArmConfig, LengthStage, TrainConfig
from shadow_model.train.reference import MODEL_CHOICES, TRAIN_CHOICES

Inputs = tuple[SourceInput, ...]
_MAX_RECIPE_BYTES = 1 << 20
_FIX = 'Write `base = "tiny"` and the fields to change.'
SomeSchema = TypeVar("SomeSchema", bound=Schema)
DEMO_INPUTS: Inputs = (
    SourceInput(lane="knowledge", name="documentation", kind="demo_text", max_bytes=6_000_000),
    SourceInput(lane="understanding", name="samples", kind="demo_media"),
)


def flat_control(proof: ArmConfig, tag: str, blocks: int, tokens: int) -> ArmConfig:
    """Return the control of a proof: as many untied blocks, for so many tokens."""
    model = proof.model.replace(flat=blocks)
    return proof.replace(tag=tag, model=model, train=proof.train.replace(tokens=tokens))


def flat_boundary(run: RunConfig) -> ArmConfig:
    """Return the control with the boundary operator: the looped body run once, no weight tied.

    Raises:
        ConfigError: The control has no more blocks than the prelude and the coda.
    """
    proof, control = run.proof, run.control
    core = control.model.flat - proof.model.prelude - proof.model.coda
    if core < 1:
        must, fix = "leave a core of a block or more", "Give the control more blocks."
        raise ConfigError("arms: flat_boundary", must, f"a core of {core} blocks", fix)
    return control.replace(
        tag=f"{control.tag}_boundary",
        model=proof.model.replace(core=core),
        train=control.train.replace(loops=(1, 1)),
    )


def loop_fixed(run: RunConfig) -> ArmConfig:
    """Return the proof without growth: the loops that it begins with, to the end."""
    loops = run.proof.train.loops[0]
    train = run.proof.train.replace(loops=(loops, loops))
    return run.proof.replace(tag=f"loop{loops}", train=train)


def flat_matched(run: RunConfig) -> ArmConfig:
    """Return the control that is to be trained for as many FLOPs as the proof.

    How many tokens that means is known once the bins are: `train.flops.match_flops`.
    """
    return run.control.replace(tag=f"{run.control.tag}_matched")


FURTHER_ARMS: Mapping[FurtherArm, Callable[[RunConfig], ArmConfig]] = {
    "flat_boundary": flat_boundary,
    "loop_fixed": loop_fixed,
    "flat_matched": flat_matched,
}
"""Arms beside the proof (a loop that grows) and its control (as many untied blocks)."""


def tiny(inputs: Inputs | None = None) -> RunConfig:
    """A CPU, minutes: the embedded data, a small model, growth, one longer context."""
    proof = ArmConfig(
        tag="proof",
        model=ModelConfig(
            width=128, heads=4, prelude=1, core=2, coda=1, index_block=32, index_top=8
        ),
        train=TrainConfig(
            tokens=192 * 1024,
            batch_tokens=1024,
            lengths=(
                LengthStage(from_frac=0, ctx_tokens=256),
                LengthStage(from_frac=0.92, ctx_tokens=512),
            ),
            micro_batches_large=1,
            sparse_from_ctx_tokens=512,
            lr=3e-3,
            warmup_frac=0.05,
            rewarm_steps=8,
            log_every_steps=8,
            evaluate_every_steps=64,
            evaluate_ctx_tokens=512,
            evaluate_tokens=24_576,
            evaluate_final_tokens=24_576,
            evaluate_final_loops=False,
            checkpoint_every_steps=64,
        ),
    )
    return RunConfig(
        name="tiny",
        sources=SourcesConfig(
            inputs=inputs or DEMO_INPUTS, num_pieces=8192, shard_tokens=65_536, val_every=11
        ),
        pack=PackConfig(val_every=11),
        speed=SpeedConfig(ctx_tokens=256, windows=8, num_lang=8192),
        proof=proof,
        control=flat_control(proof, "flat4", blocks=4, tokens=proof.train.tokens),
        report=ReportConfig(title="Shadow proof, tiny"),
    )


def small(inputs: Inputs | None = None) -> RunConfig:
    """One consumer GPU, hours: d 256 on all of the embedded data, or on the user's own."""
    proof = ArmConfig(
        tag="proof",
        model=ModelConfig(width=256, heads=4, prelude=1, core=4, coda=1),
        train=TrainConfig(
            tokens=8_000 * 16_384,
            batch_tokens=16_384,
            lengths=(
                LengthStage(from_frac=0, ctx_tokens=1024),
                LengthStage(from_frac=0.92, ctx_tokens=2048),
                LengthStage(from_frac=0.97, ctx_tokens=4096),
            ),
            lr=1e-3,
            max_epochs=64,
            checkpoint_every_steps=1000,
        ),
    )
    documentation = DEMO_INPUTS[0].replace(max_bytes=None)
    return RunConfig(
        name="small",
        sources=SourcesConfig(
            inputs=inputs or (documentation, *DEMO_INPUTS[1:]),
            num_pieces=16_384,
            shard_tokens=65_536,
            val_every=11,
        ),
        pack=PackConfig(val_every=11),
        speed=SpeedConfig(ctx_tokens=1024, windows=16, num_lang=16_384),
        proof=proof,
        control=flat_control(proof, "flat6", blocks=6, tokens=proof.train.tokens),
        arms=("flat_matched",),
        report=ReportConfig(title="Shadow proof, small"),
    )


def full(inputs: Inputs | None = None) -> RunConfig:
    """The real run: 2.3e9 tokens at d 512 on one data-centre GPU, on data that the user names.

    Its memories of n-grams hold 8e6 rows each.

    Raises:
        ConfigError: No data is named.
    """
    if inputs is None:
        must, fix = "name its data", "Add `--data FOLDER`, or [[sources.inputs]] in a recipe file."
        raise ConfigError("recipe full", must, "none", fix)
    proof = ArmConfig(
        tag="proof",
        model=ModelConfig(engram_entries=8_000_000),
        train=TrainConfig(tokens=2_300_000_000),
    )
    return RunConfig(
        name="full",
        sources=SourcesConfig(inputs=inputs, num_pieces=131_072, shard_tokens=1 << 20),
        table=TableConfig(num_lang=65_536),
        proof=proof,
        control=flat_control(proof, "flat10", blocks=10, tokens=460_000_000),
        arms=("flat_matched",),
        report=ReportConfig(title="Shadow proof"),
    )


def reference(inputs: Inputs | None = None) -> RunConfig:
    """The full run with the reference's own choices where ours differ; see each field."""
    run = full(inputs)
    proof = run.proof.replace(
        model=run.proof.model.replace(**MODEL_CHOICES),
        train=run.proof.train.replace(**TRAIN_CHOICES),
    )
    control = flat_control(proof, run.control.tag, 10, run.control.train.tokens)
    return run.replace(name="reference", proof=proof, control=control)


RECIPES: Mapping[str, Callable[[Inputs | None], RunConfig]] = {
    "tiny": tiny,
    "small": small,
    "full": full,
    "reference": reference,
}


def load(
    recipe: str | Path,
    *,
    data: str | Path | None = None,
    tokens: int | None = None,
    seed: int | None = None,
    hours: float | None = None,
    with_data: bool = True,
) -> RunConfig:
    """Return a recipe's whole config.

    Args:
        recipe: A recipe's name, or the path of a recipe file (it ends in .toml).
        data: Folder of the user's own data, in place of the recipe's.
        tokens: Training tokens of the proof; the control's change in proportion.
        seed: Of first weights, windows and index positions of both arms, and of the smoke check.
        hours: Wall-clock budget of each arm.
        with_data: False for checks that read none, so that none need be named.

    Raises:
        ConfigError: The recipe is unknown, or a field of it is unknown or cannot be.
        DataError: The data folder holds nothing that can be read.
    """
    inputs = folder_inputs(Path(data)) if data is not None else None
    if not with_data:
        inputs = DEMO_INPUTS
    if str(recipe).endswith(".toml"):
        run = _from_file(Path(recipe), inputs)
    else:
        run = _named(str(recipe), "recipe")(inputs)
    changes = {"tokens": tokens, "seed": seed, "hours": hours}
    train = {name: value for name, value in changes.items() if value is not None}
    run = _with_proof(run, run.proof.replace(train=run.proof.train.replace(**train)))
    return run if seed is None else run.replace(smoke=run.smoke.replace(seed=seed))


def _named(name: str, where: str) -> Callable[[Inputs | None], RunConfig]:
    if name not in RECIPES:
        near = difflib.get_close_matches(name, RECIPES, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else "A recipe file ends in .toml."
        raise ConfigError(where, f"be one of {', '.join(RECIPES)}", repr(name), hint)
    return RECIPES[name]


def _with_proof(run: RunConfig, proof: ArmConfig) -> RunConfig:
    """Change the proof, and the control with it."""
    share = run.control.train.tokens / run.proof.train.tokens
    tokens = round(share * proof.train.tokens)
    control = flat_control(proof, run.control.tag, run.control.model.flat, tokens)
    return run.replace(proof=proof, control=control)


def _from_file(path: Path, inputs: Inputs | None) -> RunConfig:
    changes = _read(path)
    base = _named(str(changes.pop("base", "")), f"{path}: base")
    _check_tables(changes, path)
    stated = changes.get("sources", {}).get("inputs")
    if inputs is None and isinstance(stated, list):
        inputs = tuple(_input(item, path) for item in stated)
    run = base(inputs)
    changes.setdefault("name", path.stem)
    if inputs is not None and isinstance(changes.get("sources"), dict):
        changes["sources"] = {**changes["sources"], "inputs": inputs}
    if "proof" in changes:
        run = _with_proof(run, _changed(run.proof, changes.pop("proof"), path))
    return _changed(run, changes, path)


def _read(path: Path) -> dict[str, Any]:
    with reading(ConfigError, path, "be a TOML recipe file", _FIX):
        return parse_toml(read_bounded(path, _MAX_RECIPE_BYTES))


def _check_tables(changes: Mapping[str, Any], path: Path) -> None:
    """Refuse a plain value where the parts of a run, and its inputs, have fields."""
    parts = {n for n, field in RunConfig.model_fields.items() if _is_part(field.annotation)}
    for name in sorted(parts & changes.keys()):
        if not isinstance(changes[name], Mapping):
            raise ConfigError(path, f"have a table [{name}]", repr(changes[name]), _FIX)
    inputs = changes.get("sources", {}).get("inputs", [])
    if not isinstance(inputs, list) or not all(isinstance(one, Mapping) for one in inputs):
        raise ConfigError(path, "have tables [[sources.inputs]]", repr(inputs), _FIX)


def _is_part(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Schema)


def _input(stated: Mapping[str, Any], file: Path) -> SourceInput:
    """Read one input; its path is relative to the recipe file."""
    fields = dict(stated)
    if "path" in fields:
        with _home_folders(file):
            path = Path(str(fields["path"])).expanduser()
        fields["path"] = file.resolve().parent / path
    return SourceInput.parse(fields, f"{file}: sources.inputs")


def _changed(config: SomeSchema, changes: Mapping[str, Any], where: Path) -> SomeSchema:
    with _home_folders(where):
        merged = _merged(config, changes, where.resolve().parent)
    return type(config).parse(merged, where)


def _home_folders(where: Path) -> AbstractContextManager[None]:
    """Name the recipe where a path begins with ~name, of a user that there is not."""
    return reading(ConfigError, where, "begin paths with home folders that exist", _FIX)


def _merged(config: Schema, changes: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the fields of a config with changes merged in, part by part.

    Paths are relative to `folder`: a recipe means the same from every working folder.
    """
    fields: dict[str, Any] = dict(config)
    for name, change in changes.items():
        part = fields.get(name)
        if isinstance(part, Schema) and isinstance(change, Mapping):
            fields[name] = _merged(part, change, folder)
        elif name in fields and _holds_paths(type(config).model_fields[name].annotation):
            fields[name] = _resolved(change, folder)
        else:
            fields[name] = change
    return fields


def _holds_paths(annotation: Any) -> bool:
    return annotation is Path or Path in get_args(annotation)


def _resolved(value: Any, folder: Path) -> Any:
    if isinstance(value, Mapping):
        return {name: _resolved(one, folder) for name, one in value.items()}
    return folder / Path(value).expanduser() if isinstance(value, str) else value
