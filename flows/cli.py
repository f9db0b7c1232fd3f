"""The command line: `shadow run RECIPE`, and one command for each other flow."""

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.launch import launch

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)

Recipe = Annotated[
    str, typer.Argument(help="tiny, small, full, reference, or the path of a TOML recipe.")
]
Data = Annotated[Path | None, typer.Option(help="Folder of own data.")]
StorePath = Annotated[Path, typer.Option(help="Folder of finished stages.")]
Tokens = Annotated[int | None, typer.Option(min=1, help="Training tokens.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Decides every random choice.")]
Hours = Annotated[float | None, typer.Option(min=0, help="Wall-clock budget of training.")]

DEFAULT_STORE = Path(".shadow")


@app.command()
def run(
    recipe: Recipe = "tiny",
    *,
    data: Data = None,
    store: StorePath = DEFAULT_STORE,
    tokens: Tokens = None,
    seed: Seed = None,
    hours: Hours = None,
) -> None:
    """Run the whole chain: data, checks, proof, control, report."""
    _launch("proof", store, recipe=recipe, data=data, tokens=tokens, seed=seed, hours=hours)


@app.command()
def control(
    recipe: Recipe = "tiny",
    *,
    data: Data = None,
    store: StorePath = DEFAULT_STORE,
    tokens: Tokens = None,
    seed: Seed = None,
    hours: Hours = None,
) -> None:
    """Train the flat control alone."""
    _launch("control", store, recipe=recipe, data=data, tokens=tokens, seed=seed, hours=hours)


@app.command()
def prepare(
    recipe: Recipe = "tiny",
    *,
    data: Data = None,
    store: StorePath = DEFAULT_STORE,
    seed: Seed = None,
) -> None:
    """Prepare the data: table and bins."""
    _launch("prepare", store, recipe=recipe, data=data, seed=seed)


@app.command()
def smoke(recipe: Recipe = "tiny", *, store: StorePath = DEFAULT_STORE, seed: Seed = None) -> None:
    """Check every part of the model on synthetic data; runs each time."""
    _launch("smoke", store, recipe=recipe, seed=seed)


@app.command()
def speed(recipe: Recipe = "tiny", *, store: StorePath = DEFAULT_STORE) -> None:
    """Measure the training step here; runs each time."""
    _launch("speed", store, recipe=recipe)


def main() -> None:
    """Run the command line."""
    app()


def _launch(flow: str, store: Path, **parameters: Any) -> None:
    plain = {k: str(v) if isinstance(v, Path) else v for k, v in parameters.items()}
    launch(flow, plain, store)
