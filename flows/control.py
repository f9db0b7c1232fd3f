"""The flat control alone, on the recipe's data."""

from prefect import flow

from flows.failures import write_failure
from flows.parameters import Force, Hours, Hub, Seed, Tokens, bounded_threads, forced, open_run
from flows.prepare import prepare_data
from shadow_model.config import RunConfig
from shadow_model.receipt import Receipt
from tasks.chain import Chain
from tasks.train import train_flat


def train_control(chain: Chain, config: RunConfig) -> Receipt:
    """Run the flat control in the flow run under way, and what its data need."""
    table, bins = prepare_data(chain, config)
    return chain.run(train_flat, table, bins, config.control)


@flow(
    name="control",
    flow_run_name="control {recipe}",
    task_runner=bounded_threads(),
    on_failure=[write_failure],
    on_crashed=[write_failure],
)
def control(
    recipe: str = "tiny",
    *,
    data: str | None = None,
    store: str | None = None,
    tokens: Tokens = None,
    seed: Seed = None,
    hours: Hours = None,
    force: Force = None,
    hub: Hub = None,
) -> Receipt:
    """Train the flat control of a recipe, preparing its data if that is not done.

    Args:
        recipe: tiny, small, full, reference, or the path of a TOML recipe.
        data: Folder of own data, used in place of the recipe's.
        store: Folder of finished stages; .shadow in the working folder if empty.
        tokens: Training tokens; the recipe's own if empty.
        seed: Of first weights, windows and index positions; the recipe's own if empty.
        hours: Wall-clock budget of training, in hours; none if empty.
        force: Stage to run again though it is cached, with all that reads it; none if empty.
        hub: Repository of the Hub, OWNER/NAME, that the run is pushed to and gone on with from.
    """
    config, chain = open_run(
        recipe, store, data=data, tokens=tokens, seed=seed, hours=hours, hub=hub
    )
    chain = forced(chain, train_control, config, force)
    flat = train_control(chain, config)
    chain.tell_summary()
    return flat
