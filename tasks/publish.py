"""Stage 9: the finished run on the Hub. Nothing that happens here can fail a run."""

from collections.abc import Sequence
from pathlib import Path

from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact

from shadow_model.hub.card import model_card, tag_of
from shadow_model.hub.config import HubConfig
from shadow_model.hub.pusher import Pusher, PushState
from shadow_model.hub.repository import Repository
from shadow_model.receipt import Receipt
from shadow_model.store import Store

FINAL_WITHIN_S = 1800.0
_TAKEN = {"report": "", "export": "model/"}


def publish_run(store: Store, config: HubConfig, receipts: Sequence[Receipt]) -> PushState:
    """Push weights, metrics, exported model, page and card in one commit, and wait for it."""

    @task(name="publish", task_run_name="9 publish")
    def publish() -> PushState:
        with store.temporary("hub") as folder:
            (folder / "README.md").write_text(model_card(receipts), encoding="utf-8")
            files = {"README.md": folder / "README.md", **_files(store, receipts)}
            pusher = Pusher(Repository(config), folder / "staging", config.every_minutes * 60)
            pusher.offer(files, "The finished run")
            state = pusher.finish(FINAL_WITHIN_S)
        _tell(config, state)
        return state

    state: PushState = publish()
    return state


def _files(store: Store, receipts: Sequence[Receipt]) -> dict[str, Path]:
    """Return path in the repository -> file of all that is published."""
    found: dict[str, Path] = {}
    for receipt in receipts:
        place = _TAKEN.get(receipt.stage)
        if "held_out" in receipt.counts:
            place = f"proof/{tag_of(receipt)}/"
        if place is not None:
            folder = store.folder(receipt)
            found |= {f"{place}{out.name}": folder / out.name for out in receipt.outputs}
    return found


def _tell(config: HubConfig, state: PushState) -> None:
    logger = get_run_logger()
    (logger.info if state.pushed else logger.warning)("hub: %s", state.last)
    create_markdown_artifact(
        key="hub",
        markdown=f"# {config.repo}\n\n{state.last}\n\n{state.failed} attempts failed.",
        description="What became of the push to the Hub",
    )
