"""The whole chain: data, checks, the looped proof, its flat control, the report."""

from prefect import flow

from flows.parameters import Hours, Seed, Tokens, bounded_threads, open_run
from flows.prepare import prepare_data
from shadow_model.receipt import Receipt
from tasks.report import make_report, publish_report
from tasks.smoke import check_model
from tasks.speed import measure_speed
from tasks.train import train_flat, train_proof


@flow(
    name="proof",
    flow_run_name="proof {recipe}",
    task_runner=bounded_threads(),
)
def proof(
    recipe: str = "tiny",
    *,
    data: str | None = None,
    store: str | None = None,
    tokens: Tokens = None,
    seed: Seed = None,
    hours: Hours = None,
) -> Receipt:
    """Prove a recipe: train its looped model and the flat control, and report on both.

    Args:
        recipe: tiny, small, full, reference, or the path of a TOML recipe.
        data: Folder of own data, used in place of the recipe's.
        store: Folder of finished stages; .shadow in the working folder if empty.
        tokens: Training tokens; the recipe's own if empty.
        seed: Decides every random choice; the recipe's own if empty.
        hours: Wall-clock budget of each training, in hours; none if empty.
    """
    config, chain = open_run(recipe, store, data=data, tokens=tokens, seed=seed, hours=hours)
    table, bins = prepare_data(chain, config)
    smoke = chain.run(check_model, config.smoke)
    speed = chain.after(smoke).run(measure_speed, config.speed, config.proof.model)
    looped = chain.after(speed).run(train_proof, table, bins, config.proof)
    flat = chain.after(speed).run(train_flat, table, bins, config.control)
    receipts = tuple(chain.receipts)
    report = chain.after(looped, flat).run(make_report, receipts=receipts, config=config.report)
    publish_report(chain, report)
    chain.tell_summary()
    return report
