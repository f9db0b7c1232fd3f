"""A few kills of each kind; `python -m tests.kill` does as many as one likes."""

import random
import signal
from pathlib import Path

import pytest

from tests.kill.chain import WRITES, Chain, write_recipe
from tests.kill.trainer import Trainer


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    return Trainer(tmp_path_factory.mktemp("trainer"))


def test_a_trainer_killed_at_any_moment_ends_as_the_undisturbed_one(trainer: Trainer) -> None:
    kills = trainer.kill_at_random(3, random.Random(0))
    assert kills.killed == 3
    assert kills.different == []


def test_a_trainer_killed_while_it_saves_ends_as_the_undisturbed_one(trainer: Trainer) -> None:
    kills = trainer.kill_in_saves(5, random.Random(0))
    assert kills.killed == 5
    assert kills.different == []


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"))


@pytest.fixture(scope="module")
def expected(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    chain = Chain(recipe, tmp_path_factory.mktemp("whole"))
    chain.finish()
    return chain.outputs()


@pytest.mark.slow
@pytest.mark.parametrize("where", WRITES)
def test_a_flow_killed_in_a_stages_writing_leaves_nothing_and_ends_the_same(
    where: str, recipe: Path, expected: dict[str, str], tmp_path: Path
) -> None:
    chain = Chain(recipe, tmp_path)
    for dies_at in (1, 3):
        child = chain.start(WRITES[where], dies_at)
        output, _ = child.communicate()
        assert child.returncode == -signal.SIGKILL, output
    chain.finish()
    assert chain.outputs() == expected


@pytest.mark.slow
def test_a_killed_trainer_is_resumed_by_the_flow(
    recipe: Path, expected: dict[str, str], tmp_path: Path
) -> None:
    chain = Chain(recipe, tmp_path)
    code, output = chain.kill_trainer(after_s=4.0)
    assert code == 0, output
    assert chain.outputs() == expected
    assert list(chain.trainers()) == []
