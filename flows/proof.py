"""The whole chain: data, checks, the looped proof, its flat control, the report."""

from prefect import flow

from flows.arms import train_arms
from flows.failures import write_failure
from flows.parameters import Force, Hours, Hub, Seed, Tokens, bounded_threads, forced, open_run
from flows.prepare import prepare_data
from shadow_model.config import RunConfig
from shadow_model.receipt import Receipt
from tasks.chain import Chain
from tasks.export import export_proof
from tasks.publish import publish_run
from tasks.report import make_report, publish_report
from tasks.smoke import check_model
from tasks.speed import measure_speed


def prove(chain: Chain, config: RunConfig) -> Receipt:
    """Run the whole chain in the flow run under way, up to its report."""
    table, bins = prepare_data(chain, config)
    smoke = chain.run(check_model, config.smoke)
    speed = chain.after(smoke).run(measure_speed, config.speed, config.proof.model)
    trained = train_arms(chain.after(speed), config, table, bins)
    export = chain.run(export_proof, trained[0], table, bins, config.proof, config.export)
    receipts = tuple(chain.receipts)
    return chain.after(export, *trained).run(make_report, receipts=receipts, config=config.report)


@flow(
    name="proof",
    flow_run_name="proof {recipe}",
    task_runner=bounded_threads(),
    on_failure=[write_failure],
    on_crashed=[write_failure],
)
def proof(
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
    """Prove a recipe: train its looped model and the flat control, and report on both.

    Args:
        recipe: tiny, small, full, reference, or the path of a TOML recipe.
        data: Folder of own data, used in place of the recipe's.
        store: Folder of finished stages; .shadow in the working folder if empty.
        tokens: Training tokens; the recipe's own if empty.
        seed: Of first weights, windows and index positions; the recipe's own if empty.
        hours: Wall-clock budget of each training, in hours; none if empty.
        force: Stage to run again though it is cached, with all that reads it; none if empty.
        hub: Repository of the Hub, OWNER/NAME, that the run is pushed to and gone on with from.
    """
    config, chain = open_run(
        recipe, store, data=data, tokens=tokens, seed=seed, hours=hours, hub=hub
    )
    chain = forced(chain, prove, config, force)
    report = prove(chain, config)
    publish_report(chain, report)
    if config.hub is not None:
        publish_run(chain.store, config.hub, chain.receipts)
    chain.tell_summary()
    return report
