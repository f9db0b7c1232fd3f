"""The arms of a run: the looped proof, its control and further ones, with every seed."""

from typing import ParamSpec

from shadow_model.config import FurtherArm, RunConfig
from shadow_model.receipt import Receipt
from shadow_model.recipes import FURTHER_ARMS
from tasks.chain import Chain
from tasks.stage import StageTask
from tasks.train import train_flat, train_further, train_matched, train_proof

P = ParamSpec("P")


def train_arms(
    chain: Chain, config: RunConfig, table: Receipt, bins: Receipt
) -> tuple[Receipt, ...]:
    """Train all arms, seed after seed: the first pair is compared before any other is begun."""
    runs = [config.with_seed(number) for number in range(config.seeds)]
    return tuple(receipt for run in runs for receipt in _train_seed(chain, run, table, bins))


def _train_seed(chain: Chain, run: RunConfig, table: Receipt, bins: Receipt) -> tuple[Receipt, ...]:
    proof = chain.run(_named(train_proof, run), table, bins, run.proof)
    flat = chain.run(_named(train_flat, run), table, bins, run.control)
    further = [_train_further(chain, run, name, table, bins) for name in run.arms]
    return (proof, flat, *further)


def _train_further(
    chain: Chain, run: RunConfig, name: FurtherArm, table: Receipt, bins: Receipt
) -> Receipt:
    arm = FURTHER_ARMS[name](run)
    if name == "flat_matched":
        return chain.run(_named(train_matched, run), table, bins, arm, run.proof)
    stage = train_further.relabelled(f"7 train {arm.tag}")
    return chain.run(_named(stage, run), table, bins, arm)


def _named(stage: StageTask[P], run: RunConfig) -> StageTask[P]:
    seed = run.proof.train.seed
    return stage if run.seeds == 1 else stage.relabelled(f"{stage.label}, seed {seed}")
