"""The order of the arms, walked through without running anything."""

from pathlib import Path

from flows.arms import train_arms
from shadow_model.config import RunConfig
from shadow_model.receipt import Receipt
from shadow_model.recipes import tiny
from shadow_model.store import Store
from tasks.chain import Chain
from tasks.foresight import Foresight, Unbuilt


def _labels(store: Store, config: RunConfig) -> list[str]:
    foresight = Foresight(store)
    train_arms(foresight, config, Unbuilt(stage="table"), Unbuilt(stage="pack"))
    return [outlook.label for outlook in foresight.outlooks]


def test_pair_comes_first_and_each_arm_has_every_seed(tmp_path: Path) -> None:
    store, run = Store(tmp_path), tiny()
    assert _labels(store, run) == ["6 train proof", "7 train flat"]
    several = run.replace(seeds=2, arms=("flat_boundary", "loop_fixed", "flat_matched"))
    assert _labels(store, several) == [
        f"{label}, seed {seed}"
        for seed in (0, 1)
        for label in (
            "6 train proof",
            "7 train flat",
            "7 train flat4_boundary",
            "7 train loop2",
            "7 train matched",
        )
    ]


def test_every_run_has_an_identity_of_its_own(tmp_path: Path) -> None:
    keys: list[str] = []

    class Keys(Foresight):
        def _foresee(self, stage, inputs):  # type: ignore[no-untyped-def]
            keys.append(stage.identity(inputs).key)
            return super()._foresee(stage, inputs)

    config = tiny().replace(seeds=2, arms=("flat_matched",))
    chain: Chain = Keys(Store(tmp_path))
    receipts: tuple[Receipt, ...] = train_arms(
        chain, config, Receipt(stage="table", key="a"), Receipt(stage="pack", key="b")
    )
    assert len(receipts) == 6
    assert len(set(keys)) == 6
