"""Collection removes what no kept run needs, and nothing that one does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shadow_model.errors import ConfigError
from shadow_model.garbage import find_garbage, remove_garbage
from shadow_model.locking import try_lock
from shadow_model.receipt import Identity, Receipt
from shadow_model.run_record import RunLog, StageUse
from shadow_model.store import Store
from shadow_model.unfinished import WorkRecord

CODE = ["shadow_model.table.layout"]
DIE = """
import os, sys
from shadow_model.receipt import Identity
from shadow_model.store import Store
from shadow_model.unfinished import WorkRecord
with Store(sys.argv[1]).build(Identity.of("dead", (), {}, [])) as build:
    (build.folder / "half").write_bytes(bytes(1000))
    os.kill(os.getpid(), 9)
"""


def build(store: Store, stage: str, *inputs: Receipt, text: str = "x") -> Receipt:
    with store.build(Identity.of(stage, inputs, {"text": text}, CODE)) as one:
        (one.folder / "out").write_text(text * 1000)
    assert one.receipt is not None
    return one.receipt


def run(store: Store, ident: str, *receipts: Receipt) -> RunLog:
    log = RunLog(store, ident, ident)
    uses = [StageUse(label=r.stage, stage=r.stage, key=r.key, state="built") for r in receipts]
    log.note(uses)
    return log


def stages(store: Store) -> set[str]:
    return {receipt.stage for receipt in store.receipts()}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_a_dry_run_removes_nothing_and_says_how_much_would_go(store: Store) -> None:
    run(store, "first", build(store, "old"))
    run(store, "last", build(store, "new"))
    found = find_garbage(store, keep=1)
    whys = {item.why for item in found.garbage if item.path.parent.name == "old"}
    assert whys == {"no kept run refers to it"}
    assert found.freed_bytes > 1000
    assert stages(store) == {"old", "new"}


def test_the_last_runs_stay_with_all_that_led_to_them(store: Store) -> None:
    source = build(store, "source")
    table = build(store, "table", source)
    run(store, "first", build(store, "old", source))
    run(store, "last", build(store, "new", table))
    removed = remove_garbage(store, keep=1)
    assert [record.id for record in removed.kept] == ["last"]
    assert stages(store) == {"source", "table", "new"}
    assert all(store.find(r.stage, r.key, deep=True) for r in store.receipts())
    assert not (store.root / "runs" / "first.json").exists()
    assert not list((store.root / "tmp").iterdir())
    assert find_garbage(store, keep=1).garbage == ()


def test_more_kept_runs_keep_more(store: Store) -> None:
    run(store, "first", build(store, "old"))
    run(store, "last", build(store, "new"))
    assert find_garbage(store, keep=2).garbage == ()
    with pytest.raises(ConfigError, match="must be 1 or more; found 0"):
        find_garbage(store, keep=0)


def test_a_run_that_lives_is_kept_however_old(store: Store) -> None:
    alive = run(store, "alive", build(store, "used"))
    run(store, "last", build(store, "new"))
    assert find_garbage(store, keep=1).garbage == ()
    del alive
    assert find_garbage(store, keep=1).garbage != ()


def test_a_stage_that_is_being_built_stays(store: Store) -> None:
    receipt = build(store, "busy")
    run(store, "last", build(store, "new"))
    (store.root / "locks").mkdir()
    held = try_lock(store.root / "locks" / f"busy-{receipt.key}.lock")
    assert held is not None
    remove_garbage(store, keep=1)
    assert stages(store) == {"busy", "new"}
    os.close(held)
    remove_garbage(store, keep=1)
    assert stages(store) == {"new"}


def test_unfinished_work_stays_while_a_kept_run_may_go_on_with_it(store: Store) -> None:
    log = RunLog(store, "stopped", "")
    log.note([StageUse(label="6 proof", stage="proof", key="k", state="started")])
    del log
    for stage, key in (("proof", "k"), ("flat", "gone")):
        folder = store.root / "work" / stage
        folder.mkdir(parents=True)
        (folder / "checkpoint").write_text("step 1")
        record = WorkRecord(stage=stage, key=key, code={})
        (folder / "work.json").write_text(record.model_dump_json())
    (store.root / "work" / "unreadable").mkdir()
    (store.root / "work" / "unreadable" / "work.json").write_text("{")
    remove_garbage(store, keep=1)
    assert [path.name for path in (store.root / "work").iterdir()] == ["proof"]
    run(store, "next", build(store, "new"))
    remove_garbage(store, keep=1)
    assert not list((store.root / "work").iterdir())


def test_the_folder_of_a_killed_builder_goes_and_of_a_living_one_stays(store: Store) -> None:
    subprocess.run([sys.executable, "-c", DIE, str(store.root)], check=False)
    with store.temporary("living") as living:
        names = [item.path.name for item in find_garbage(store, keep=1).garbage]
        assert all(name.startswith("dead-") for name in names)
        assert len(names) == 2, "the folder and its lock"
        remove_garbage(store, keep=1)
        assert living.is_dir()
        assert {p.name for p in living.parent.iterdir()} == {living.name, f"{living.name}.lock"}


def test_a_store_without_records_keeps_its_outputs(store: Store) -> None:
    build(store, "old")
    assert find_garbage(store, keep=1).garbage == ()


def test_files_that_have_another_name_free_nothing(store: Store) -> None:
    old = build(store, "old")
    identity = Identity.of("old", (), {"text": "x"}, ["shadow_model.schema"])
    run(store, "last", store.accept(old, identity, "same", ["code"]))
    freed = find_garbage(store, keep=1).freed_bytes
    receipt_bytes = (store.folder(old) / "receipt.json").stat().st_size
    notes = sum(p.stat().st_size for p in (store.root / "code").iterdir())
    assert receipt_bytes <= freed <= receipt_bytes + notes
    remove_garbage(store, keep=1)
    assert store.find("old", identity.key, deep=True)
