"""From raw files to bins: raw inputs -> sources -> table -> shards -> bins. No GPU."""

from typing import NamedTuple

from prefect import flow

from flows.failures import write_failure
from flows.parameters import Force, bounded_threads, forced, open_run
from shadow_model.config import RunConfig
from shadow_model.receipt import Receipt
from tasks.chain import Chain
from tasks.pack import make_bins
from tasks.raw import raw_inputs, raw_vectors
from tasks.remap import remap_batch, shard_batches
from tasks.sources import make_sources
from tasks.table import make_table


class Data(NamedTuple):
    """What training reads."""

    table: Receipt
    bins: Receipt


def prepare_data(chain: Chain, config: RunConfig) -> Data:
    """Run stages 0 to 3 in the flow run under way, so that its graph shows them."""
    raw = chain.start(raw_inputs, config.sources)
    sources = chain.run(make_sources, raw, config.sources)
    files = config.table.files
    vectors = chain.start(raw_vectors, files) if files else None
    table = chain.run(make_table, sources, config.table, config.pack.val_every, vectors)
    shards = chain.map(
        remap_batch,
        shard_batches(sources),
        name="names",
        sources=sources,
        table=table,
        config=config.remap,
    )
    return Data(table, chain.run(make_bins, shards, table, config.pack))


@flow(
    name="prepare",
    flow_run_name="prepare {recipe}",
    task_runner=bounded_threads(),
    on_failure=[write_failure],
    on_crashed=[write_failure],
)
def prepare(
    recipe: str = "tiny",
    *,
    data: str | None = None,
    store: str | None = None,
    force: Force = None,
) -> Receipt:
    """Prepare the data of a recipe: its table and bins.

    Args:
        recipe: tiny, small, full, reference, or the path of a TOML recipe.
        data: Folder of own data, used in place of the recipe's.
        store: Folder of finished stages; .shadow in the working folder if empty.
        force: Stage to run again though it is cached, with all that reads it; none if empty.
    """
    config, chain = open_run(recipe, store, data=data)
    chain = forced(chain, prepare_data, config, force)
    bins = prepare_data(chain, config).bins
    chain.tell_summary()
    return bins
