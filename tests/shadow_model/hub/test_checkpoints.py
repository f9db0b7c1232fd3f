"""A run goes on from the Hub on an empty machine, and ends as if it had never moved."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from shadow_model.digest import sha256_file
from shadow_model.errors import CheckpointError
from shadow_model.hub.checkpoints import checkpoint_files, fetch_checkpoint
from shadow_model.hub.config import HubConfig
from shadow_model.hub.repository import Repository
from shadow_model.train.trainer import TrainJob, train
from tests.shadow_model.hub.server import HubServer
from tests.small_run import Data, small_arm, write_data

REPO = "someone/proof-runs"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return write_data(tmp_path_factory.mktemp("data"))


def job(data: Data, work: Path) -> TrainJob:
    return TrainJob(arm=small_arm(), table=data.table_path, bins=data.bins, work=work)


def interrupted(data: Data, work: Path) -> Path:
    """Train until the second checkpoint is there."""
    calls: list[Any] = []

    def stop() -> bool:
        calls.append(1)
        return (work / "checkpoints" / "step_00000008").exists()

    assert train(job(data, work), stop=stop)["status"] == "stopped"
    return work


def test_a_run_goes_on_elsewhere_bit_for_bit(hub: HubServer, data: Data, tmp_path: Path) -> None:
    train(job(data, tmp_path / "whole"))
    work = interrupted(data, tmp_path / "here")
    files = checkpoint_files(work, "test")
    Repository(HubConfig(repo=REPO)).push(files, "step 8")
    assert "proof/ckpt/test_latest/model.safetensors" in hub.files[REPO]
    assert "proof/ckpt/test.metrics.jsonl" in hub.files[REPO]
    shutil.rmtree(work)

    elsewhere = tmp_path / "elsewhere"
    found = fetch_checkpoint(Repository(HubConfig(repo=REPO)), "test", elsewhere)
    assert found == elsewhere / "checkpoints" / "step_00000008"
    train(job(data, elsewhere))
    weights = Path("final") / "model.safetensors"
    assert sha256_file(elsewhere / weights) == sha256_file(tmp_path / "whole" / weights)


def test_a_checkpoint_of_ones_own_is_not_replaced(
    hub: HubServer, data: Data, tmp_path: Path
) -> None:
    work = interrupted(data, tmp_path / "here")
    Repository(HubConfig(repo=REPO)).push(checkpoint_files(work, "test"), "step 8")
    calls = len(hub.calls)
    assert fetch_checkpoint(Repository(HubConfig(repo=REPO)), "test", work) is None
    assert len(hub.calls) == calls


def test_a_damaged_checkpoint_is_refused(hub: HubServer, data: Data, tmp_path: Path) -> None:
    work = interrupted(data, tmp_path / "here")
    Repository(HubConfig(repo=REPO)).push(checkpoint_files(work, "test"), "step 8")
    name = "proof/ckpt/test_latest/model.safetensors"
    hub.files[REPO][name] = hub.files[REPO][name][:-1] + b"?"
    with pytest.raises(CheckpointError, match=r"model\.safetensors of the Hub: must have sha256"):
        fetch_checkpoint(Repository(HubConfig(repo=REPO)), "test", tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere" / "checkpoints").exists()


def test_an_empty_hub_has_nothing(hub: HubServer, tmp_path: Path) -> None:
    del hub
    assert fetch_checkpoint(Repository(HubConfig(repo=REPO)), "test", tmp_path) is None
    assert list(tmp_path.iterdir()) == []
