"""A repository is written in one commit, and read as of one commit."""

from pathlib import Path

import pytest

from shadow_model.hub.config import HubConfig
from shadow_model.hub.repository import Repository, retry_after_s
from tests.shadow_model.hub.server import TOKEN, Fault, HubServer, answers, drops

REPO = "someone/proof-runs"


def repository() -> Repository:
    return Repository(HubConfig(repo=REPO))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "weights").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "state").write_text("{}")
    return {"a/w.safetensors": tmp_path / "weights", "a/state.json": tmp_path / "state"}


def test_all_files_are_one_commit(hub: HubServer, files: dict[str, Path]) -> None:
    commit = repository().push(files, "step 4")
    assert (hub.commits, commit) == ([(REPO, "step 4")], hub.commit)
    assert hub.files[REPO] == {name: path.read_bytes() for name, path in files.items()}


def test_unchanged_files_make_no_commit(hub: HubServer, files: dict[str, Path]) -> None:
    there = repository()
    first = there.push(files, "step 4")
    assert there.push(files, "step 4 again") == first
    assert len(hub.commits) == 1


def test_what_was_pushed_comes_back(hub: HubServer, files: dict[str, Path], tmp_path: Path) -> None:
    del hub
    repository().push(files, "step 4")
    assert repository().pull("a/*", tmp_path / "back")
    for name, path in files.items():
        assert (tmp_path / "back" / name).read_bytes() == path.read_bytes()


def test_no_repository_is_no_fault(hub: HubServer, tmp_path: Path) -> None:
    del hub
    assert not repository().pull("*", tmp_path)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (answers(429, Retry_After="7"), 7.0),
        (answers(503), 0.0),
        (answers(500), 0.0),
        (drops, 0.0),
        (answers(403), None),
    ],
)
def test_which_failures_may_pass(
    hub: HubServer, files: dict[str, Path], fault: Fault, expected: float | None
) -> None:
    hub.faults = [fault]
    with pytest.raises(Exception) as caught:  # noqa: PT011 (what a caller gets)
        repository().push(files, "step 4")
    assert retry_after_s(caught.value) == expected
    assert TOKEN not in str(caught.value)


def test_a_cause_may_pass_too_and_a_mistake_of_ours_does_not() -> None:
    wrapped = RuntimeError("upload")
    wrapped.__cause__ = ConnectionResetError()
    assert retry_after_s(wrapped) == 0.0
    assert retry_after_s(ValueError("ours")) is None
