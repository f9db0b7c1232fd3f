"""The command line: `shadow run RECIPE`, a command for each other flow, and those on the cache."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from flows.launch import Told, launch, launch_in_callers_prefect

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)

Recipe = Annotated[
    str, typer.Argument(help="tiny, small, full, reference, or the path of a TOML recipe.")
]
Data = Annotated[Path | None, typer.Option(help="Folder of own data.")]
StorePath = Annotated[Path, typer.Option(help="Folder of finished stages.")]
Tokens = Annotated[int | None, typer.Option(min=1, help="Training tokens.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Of first weights and windows.")]
Hours = Annotated[float | None, typer.Option(min=0, help="Wall-clock budget of training.")]

Hub = Annotated[
    str | None,
    typer.Option(help="Repository to push to, and to go on from.", metavar="OWNER/NAME"),
]
Force = Annotated[
    str | None, typer.Option(help="Stage to run again, with all that reads it.", metavar="STAGE")
]
FlowName = Annotated[
    Literal["proof", "control", "prepare"], typer.Option("--flow", help="Which flow.")
]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Tell errors and the outcome only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Tell everything.")]

DEFAULT_STORE = Path(".shadow")
FORETELL, UPKEEP = "flows.foretell", "flows.upkeep"
GENERATION = "flows.generation"


@app.command()
def run(
    recipe: Recipe = "tiny",
    *,
    data: Data = None,
    store: StorePath = DEFAULT_STORE,
    tokens: Tokens = None,
    seed: Seed = None,
    hours: Hours = None,
    force: Force = None,
    hub: Hub = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run the whole chain: data, checks, proof, control, report."""
    given = {
        "data": data,
        "tokens": tokens,
        "seed": seed,
        "hours": hours,
        "force": force,
        "hub": hub,
    }
    _launch("proof", store, _told(quiet, verbose), recipe=recipe, **given)


@app.command()
def control(
    recipe: Recipe = "tiny",
    *,
    data: Data = None,
    store: StorePath = DEFAULT_STORE,
    tokens: Tokens = None,
    seed: Seed = None,
    hours: Hours = None,
    force: Force = None,
    hub: Hub = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train the flat control alone."""
    given = {
        "data": data,
        "tokens": tokens,
        "seed": seed,
        "hours": hours,
        "force": force,
        "hub": hub,
    }
    _launch("control", store, _told(quiet, verbose), recipe=recipe, **given)


@app.command()
def prepare(
    recipe: Recipe = "tiny",
    *,
    data: Data = None,
    store: StorePath = DEFAULT_STORE,
    force: Force = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Prepare the data: table and bins."""
    _launch("prepare", store, _told(quiet, verbose), recipe=recipe, data=data, force=force)


@app.command()
def smoke(
    recipe: Recipe = "tiny",
    *,
    store: StorePath = DEFAULT_STORE,
    seed: Seed = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Check every part of the model on synthetic data; runs each time."""
    _launch("smoke", store, _told(quiet, verbose), recipe=recipe, seed=seed)


@app.command()
def speed(
    recipe: Recipe = "tiny",
    *,
    store: StorePath = DEFAULT_STORE,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Measure the training step here; runs each time."""
    _launch("speed", store, _told(quiet, verbose), recipe=recipe)


@app.command()
def plan(
    recipe: Recipe = "tiny",
    *,
    flow: FlowName = "proof",
    data: Data = None,
    store: StorePath = DEFAULT_STORE,
    tokens: Tokens = None,
    seed: Seed = None,
    hours: Hours = None,
    force: Force = None,
) -> None:
    """Tell what would run, what is cached, and why; runs nothing."""
    given = {"data": data, "tokens": tokens, "seed": seed, "hours": hours, "force": force}
    _tell("plan", FORETELL, store, flow=flow, recipe=recipe, **given)


@app.command()
def accept(
    stage: Annotated[str, typer.Argument(help="Stage whose outputs stay.")],
    recipe: Recipe = "tiny",
    *,
    reason: Annotated[str, typer.Option(help="Why they are still right; its receipt keeps it.")],
    flow: FlowName = "proof",
    data: Data = None,
    store: StorePath = DEFAULT_STORE,
    tokens: Tokens = None,
    seed: Seed = None,
    hours: Hours = None,
) -> None:
    """Keep the outputs of a stage though its code changed, and nothing else did."""
    given = {"data": data, "tokens": tokens, "seed": seed, "hours": hours, "reason": reason}
    _tell("accept", FORETELL, store, flow=flow, recipe=recipe, stage=stage, **given)


@app.command()
def gc(
    *,
    store: StorePath = DEFAULT_STORE,
    keep: Annotated[int, typer.Option(min=1, help="Last runs to keep.")] = 5,
    apply: Annotated[bool, typer.Option("--apply", help="Remove it.")] = False,
) -> None:
    """Tell what no kept run needs: old outputs, work of dead runs, temporary folders."""
    _tell("gc", UPKEEP, store, keep=keep, apply=apply)


@app.command()
def lineage(
    file: Annotated[Path, typer.Argument(help="An output file, or a copy of one.")],
    *,
    store: StorePath = DEFAULT_STORE,
    picture: Annotated[Path | None, typer.Option(help="Draw it, as .svg or .png.")] = None,
) -> None:
    """Tell where an output file came from, back to the raw sources."""
    _tell("lineage", UPKEEP, store, file=file, picture=picture)


@app.command()
def compare(
    runs: Annotated[
        list[str], typer.Argument(help="Runs: ids, their beginnings, names, or report folders.")
    ],
    *,
    store: StorePath = DEFAULT_STORE,
    out: Annotated[Path, typer.Option(help="Folder for the page.")] = Path("compared"),
) -> None:
    """Write a page of several runs: curves, losses, costs, and what they differ in."""
    named = [str(Path(run).resolve()) if Path(run).exists() else run for run in runs]
    _tell("compare", UPKEEP, store, runs=named, out=out.resolve())


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="First words, or the caption of what is wanted.")],
    *,
    kind: Annotated[
        Literal["text", "picture", "sound", "clip"], typer.Option(help="What is wanted.")
    ] = "text",
    model: Annotated[
        Path | None, typer.Option(help="Exported model; by default the store's newest.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for what is made.")] = Path("generated"),
    store: StorePath = DEFAULT_STORE,
    num: Annotated[int, typer.Option(min=1, max=256, help="How many, side by side.")] = 1,
    rows: Annotated[int, typer.Option(min=1, help="Most rows of each.")] = 300,
    temperature: Annotated[float, typer.Option(min=0, help="0: the best row each time.")] = 0.8,
    top_k: Annotated[int, typer.Option(min=0, help="Best rows to draw from; 0: all.")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds draw equal rows.")] = 0,
    int8: Annotated[bool, typer.Option(help="Int8 products; the rows are the same.")] = True,
) -> None:
    """Make text, pictures, sounds or clips with an exported model."""
    places = {"out": out.resolve(), "model": model and model.resolve()}
    drawn = {"temperature": temperature, "top_k": top_k, "seed": seed}
    given = {"prompt": prompt, "kind": kind, "num": num, "rows": rows, "int8": int8}
    _tell("generate", GENERATION, store, **places, **drawn, **given)


@app.command()
def server(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port to listen on.")] = 4200,
) -> None:
    """Start a Prefect server with the settings that weeks of running need."""
    launch_in_callers_prefect("server", "flows.server", {"host": host, "port": port})


@app.command()
def setup(
    *,
    failures: Annotated[
        str | None, typer.Option(help="Tell failed runs here.", metavar="FILE_OR_URL")
    ] = None,
    crashed_after: Annotated[
        int, typer.Option(min=35, help="Seconds without a heartbeat (each 30) to be crashed.")
    ] = 90,
) -> None:
    """Install work pools, deployments and automations on the server of PREFECT_API_URL."""
    given = {"crashed_after_s": crashed_after, "failures": failures}
    launch_in_callers_prefect("setup", "flows.installation", given)


def main() -> None:
    """Run the command line."""
    app()


def _launch(flow: str, store: Path, told: Told, **parameters: Any) -> None:
    launch(flow, _plain(parameters), store, told=told)


def _told(quiet: bool, verbose: bool) -> Told:
    if quiet and verbose:
        raise typer.BadParameter("--quiet and --verbose exclude each other")
    return "quiet" if quiet else "verbose" if verbose else "normal"


def _tell(command: str, module: str, store: Path, **parameters: Any) -> None:
    launch(command, _plain(parameters), store, module)


def _plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {k: str(v) if isinstance(v, Path) else v for k, v in parameters.items()}
