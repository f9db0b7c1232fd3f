"""Checks that need no data. They run again each time; inside the proof they are cached."""

from prefect import flow

from flows.failures import write_failure
from flows.parameters import Seed, open_run
from shadow_model.receipt import Receipt
from tasks.smoke import check_model
from tasks.speed import measure_speed


@flow(
    name="smoke",
    flow_run_name="smoke {recipe}",
    on_failure=[write_failure],
    on_crashed=[write_failure],
)
def smoke(recipe: str = "tiny", *, store: str | None = None, seed: Seed = None) -> Receipt:
    """Train a few steps on synthetic spans and check every part of the model.

    Args:
        recipe: tiny, small, full, reference, or the path of a TOML recipe.
        store: Folder of finished stages; .shadow in the working folder if empty.
        seed: Of the synthetic table, spans and weights; the recipe's own if empty.
    """
    config, chain = open_run(recipe, store, refresh=True, seed=seed, with_data=False)
    return chain.run(check_model, config.smoke)


@flow(
    name="speed",
    flow_run_name="speed {recipe}",
    on_failure=[write_failure],
    on_crashed=[write_failure],
)
def speed(recipe: str = "tiny", *, store: str | None = None) -> Receipt:
    """Measure tokens/s, memory and utilisation of full training steps here.

    Args:
        recipe: tiny, small, full, reference, or the path of a TOML recipe.
        store: Folder of finished stages; .shadow in the working folder if empty.
    """
    config, chain = open_run(recipe, store, refresh=True, with_data=False)
    return chain.run(measure_speed, config.speed, config.proof.model)
