"""Trainings and finished runs on a Hub that works, and on one that never does."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from prefect import flow

from shadow_model.hub.config import HubConfig
from shadow_model.receipt import Receipt
from shadow_model.store import Store
from tasks import publish
from tasks.chain import Chain
from tasks.publish import publish_run
from tasks.train import train_proof
from tests.shadow_model.hub.server import TOKEN, HubServer, answers
from tests.small_run import small_arm, write_data
from tests.tasks.test_train import published

pytestmark = pytest.mark.usefixtures("prefect_api")
HUB = HubConfig(repo="someone/proof-runs")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    server = HubServer()
    template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield server
    server.shutdown()


def train_small(folder: Path, hub: HubConfig | None) -> tuple[Store, Receipt]:
    folder.mkdir()
    store, data = Store(folder / "store"), write_data(folder)
    table = published(store, "table", [data.table_path])
    bins = published(
        store, "pack", [data.bins / n for n in ("train.bin", "val.bin", "packed.json")]
    )

    def run() -> Receipt:
        chain = Chain(store, hub=hub)
        receipt = chain.run(train_proof, table, bins, small_arm())
        if hub is not None:
            publish_run(store, hub, chain.receipts)
        return receipt

    return store, flow(run, name="hub")()


def test_a_training_is_pushed_and_so_is_the_finished_run(hub: HubServer, tmp_path: Path) -> None:
    store, receipt = train_small(tmp_path / "pushed", HUB)
    files = hub.files[HUB.repo]
    place = "proof/ckpt/test_latest/"
    assert {
        f"{place}model.safetensors",
        f"{place}state.json",
        "proof/ckpt/test.log",
    } <= files.keys()
    assert b"HELD-OUT step 12" in files["proof/ckpt/test.log"]
    final = files["proof/test/final/model.safetensors"]
    assert final == (store.folder(receipt) / "final" / "model.safetensors").read_bytes()
    card = files["README.md"].decode()
    assert f"{receipt.counts['held_out']['loss']:.4f}" in card
    assert receipt.as_input().sha256[:16] in card
    assert hub.commits[-1] == (HUB.repo, "The finished run")


def test_a_hub_that_refuses_changes_nothing(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.always = answers(403)
    monkeypatch.setattr(publish, "FINAL_WITHIN_S", 20.0)
    _store, without = train_small(tmp_path / "without", None)
    _store, refused = train_small(tmp_path / "refused", HUB)
    assert without.key == refused.key, "where a run is pushed to is no part of what it is"
    weights = "final/model.safetensors"
    assert refused.output(weights).sha256 == without.output(weights).sha256
    assert hub.commits == []
