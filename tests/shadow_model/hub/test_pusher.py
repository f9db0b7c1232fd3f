"""Pushing never waits, never raises, and ends with the last that was offered."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shadow_model.hub.config import HubConfig
from shadow_model.hub.pusher import Pusher
from shadow_model.hub.repository import Repository
from tests.shadow_model.hub.server import TOKEN, HubServer, answers, drops

REPO = "someone/proof-runs"
NAME = "proof/ckpt/proof_latest/state.json"


def pusher(folder: Path, every_s: float = 0.0) -> Pusher:
    repository = Repository(HubConfig(repo=REPO))
    return Pusher(repository, folder / "staging", every_s, back_off_s=(0.01, 0.02))


def offer(to: Pusher, folder: Path, content: str) -> None:
    path = folder / "state.json"
    path.write_text(content)
    to.offer({NAME: path}, content)
    path.unlink()  # as a checkpoint that is no longer kept


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_was_offered_is_pushed_though_it_is_gone(hub: HubServer, tmp_path: Path) -> None:
    one = pusher(tmp_path)
    offer(one, tmp_path, "step 4")
    state = one.finish(30)
    assert hub.files[REPO] == {NAME: b"step 4"}
    assert (state.pushed, state.failed, state.refused) == (1, 0, False)
    assert not (tmp_path / "staging").exists()


def test_of_offers_that_come_faster_the_last_counts(hub: HubServer, tmp_path: Path) -> None:
    one = pusher(tmp_path, every_s=3600)
    offer(one, tmp_path, "step 1")
    until(lambda: one.state.pushed)
    for step in range(2, 9):
        offer(one, tmp_path, f"step {step}")
    assert one.finish(30).pushed == 2, "the end does not wait for its turn"
    assert [message for _, message in hub.commits] == ["step 1", "step 8"]


@pytest.mark.parametrize(
    "fault", [answers(503), answers(429, Retry_After="0"), drops], ids=["503", "429", "drop"]
)
def test_what_may_pass_is_tried_again(hub: HubServer, tmp_path: Path, fault: object) -> None:
    hub.faults = [fault, fault]  # type: ignore[list-item]
    one = pusher(tmp_path)
    offer(one, tmp_path, "step 4")
    until(lambda: one.state.pushed)
    assert one.finish(30).failed == 2
    assert hub.files[REPO] == {NAME: b"step 4"}


def test_a_refusal_is_told_and_given_up(
    hub: HubServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hub.always = answers(403)
    one = pusher(tmp_path)
    caplog.set_level("INFO")
    offer(one, tmp_path, "step 4")
    until(lambda: one.state.refused)
    for _ in range(3):
        offer(one, tmp_path, "step 5")
    state = one.finish(30)
    assert (state.pushed, state.failed) == (0, 1)
    assert "refused" in state.last
    assert [call for call in hub.calls if "POST" in call] == ["POST /api/repos/create"]
    assert TOKEN not in caplog.text + state.last


def test_the_end_does_not_wait_for_a_hub_that_never_answers(hub: HubServer, tmp_path: Path) -> None:
    hub.always = answers(503)
    one = pusher(tmp_path)
    offer(one, tmp_path, "step 4")
    assert "given up after 0 s" in one.finish(0.2).last
