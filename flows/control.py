"""The flat control alone, on the recipe's data."""

from prefect import flow

from flows.parameters import Hours, Seed, Tokens, bounded_threads, open_run
from flows.prepare import prepare_data
from shadow_model.receipt import Receipt
from tasks.train import train_flat


@flow(
    name="control",
    flow_run_name="control {recipe}",
    task_runner=bounded_threads(),
)
def control(
    recipe: str = "tiny",
    *,
    data: str | None = None,
    store: str | None = None,
    tokens: Tokens = None,
    seed: Seed = None,
    hours: Hours = None,
) -> Receipt:
    """Train the flat control of a recipe, preparing its data if that is not done.

    Args:
        recipe: tiny, small, full, reference, or the path of a TOML recipe.
        data: Folder of own data, used in place of the recipe's.
        store: Folder of finished stages; .shadow in the working folder if empty.
        tokens: Training tokens; the recipe's own if empty.
        seed: Decides every random choice; the recipe's own if empty.
        hours: Wall-clock budget of training, in hours; none if empty.
    """
    config, chain = open_run(recipe, store, data=data, tokens=tokens, seed=seed, hours=hours)
    table, bins = prepare_data(chain, config)
    flat = chain.run(train_flat, table, bins, config.control)
    chain.tell_summary()
    return flat
