"""The record of a run: written as it goes, its owner's life is seen, a retry goes on with it."""

import subprocess
import sys
from pathlib import Path

from shadow_model.run_record import RunLog, StageUse, is_alive, run_records
from shadow_model.store import Store

DIE = """
import os, sys
from shadow_model.run_record import RunLog, StageUse
from shadow_model.store import Store
log = RunLog(Store(sys.argv[1]), "dead", "proof tiny")
log.note([StageUse(label="1 table", stage="table", key="k", state="started")])
os.kill(os.getpid(), 9)
"""


def use(stage: str, state: str = "started") -> StageUse:
    return StageUse(label=stage, stage=stage, key="k", state=state)  # type: ignore[arg-type]


def test_stages_are_noted_in_order_with_their_last_state(tmp_path: Path) -> None:
    store = Store(tmp_path)
    log = RunLog(store, "one", "proof tiny")
    log.note([use("table")])
    log.note([use("pack")])
    log.note([use("table", "built")])
    (record,) = run_records(store)
    assert [(u.stage, u.state) for u in record.uses] == [("table", "built"), ("pack", "started")]
    assert record.used == {("table", "k"), ("pack", "k")}
    assert record.name == "proof tiny"


def test_a_retry_goes_on_with_the_record(tmp_path: Path) -> None:
    store = Store(tmp_path)
    RunLog(store, "one", "").note([use("table", "built")])
    RunLog(store, "one", "").note([use("pack")])
    assert run_records(store)[0].used == {("table", "k"), ("pack", "k")}


def test_the_newest_comes_first_and_a_garbled_one_is_passed_over(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for ident in ("one", "two"):
        RunLog(store, ident, "").note([use("table")])
    RunLog(store, "one", "").note([use("pack")])
    (tmp_path / "runs" / "three.json").write_text("{")
    assert [record.id for record in run_records(store)] == ["one", "two"]


def test_a_killed_run_is_known_to_be_dead(tmp_path: Path) -> None:
    store = Store(tmp_path)
    log = RunLog(store, "live", "")
    log.note([use("table")])
    subprocess.run([sys.executable, "-c", DIE, str(tmp_path)], check=False)
    assert {r.id for r in run_records(store)} == {"live", "dead"}
    assert (is_alive(store, "live"), is_alive(store, "dead")) == (True, False)
