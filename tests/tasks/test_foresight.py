"""A plan says what a run then does, and why; what is accepted stays, with its reason."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prefect import flow
from prefect.task_runners import ThreadPoolTaskRunner

from shadow_model.errors import CheckpointError, ConfigError, DataError
from shadow_model.receipt import FileRecord, Receipt
from shadow_model.schema import Schema
from shadow_model.store import Store
from tasks.chain import Chain
from tasks.foresight import Acceptance, Foresight, foresee_names
from tasks.raw import Look
from tasks.stage import Resuming, Work, stage_task

pytestmark = pytest.mark.usefixtures("prefect_api")
EditCode = Callable[[str, str], None]
HELPER = "def twice(x):\n    return 2 * x\n\n\ndef unused(x):\n    return x\n"


class Config(Schema):
    """Config of the toy order."""

    letters: str = "ab"
    times: int = 2
    batches: tuple[str, ...] = ("x", "y")


def listing(_store: Store, letters: str) -> Sequence[FileRecord]:
    return [
        FileRecord(name=f"{n}.txt", sha256=str(ord(c)) * 16, bytes=1) for n, c in enumerate(letters)
    ]


look = Look("0 raw", listing)


@stage_task("source", "1 source", ["shadow_model.schema"])
def make_source(work: Work, raw: Receipt) -> Mapping[str, Any]:
    """Write what was read."""
    (work.folder / "out.txt").write_text(raw.key)
    return {}


@stage_task("double", "2 double", ["toycode.stage"])
def make_double(work: Work, source: Receipt, times: int) -> Mapping[str, Any]:
    """Repeat the source."""
    (work.folder / "out.txt").write_text((work.of(source) / "out.txt").read_text() * times)
    return {}


@stage_task("part", "3 part", ["shadow_model.schema"])
def make_part(work: Work, double: Receipt, name: str) -> Mapping[str, Any]:
    """Write a name."""
    (work.folder / "out.txt").write_text((work.of(double) / "out.txt").read_text() + name)
    return {}


@stage_task("check", "4 check", ["shadow_model.schema"])
def check(work: Work) -> Mapping[str, Any]:
    """Read nothing."""
    (work.folder / "out.txt").write_text("passed")
    return {}


def order(chain: Chain, config: Config) -> None:
    source = chain.run(make_source, chain.start(look, config.letters))
    double = chain.run(make_double, source, config.times)
    names = config.batches if double.outputs else ()
    chain.map(make_part, {f"3 part {n}": n for n in names}, "name", double=double)
    chain.after(double).run(check)


def run(store: Store, config: Config | None = None, force: str | None = None) -> Chain:
    """Run the order in a flow."""
    chain = Chain(store, force=force)
    runner = ThreadPoolTaskRunner(max_workers=2)  # type: ignore[var-annotated]
    flow(lambda: order(chain, config or Config()), name="toy", task_runner=runner)()
    return chain


def foresee(store: Store, config: Config | None = None, **fields: Any) -> Foresight:
    foresight = Foresight(store, **fields)
    order(foresight, config or Config())
    return foresight


def told(foresight: Foresight) -> dict[str, tuple[str, ...]]:
    """Return {label: why} of what would run."""
    return {o.label: o.why for o in foresight.outlooks if o.state == "runs"}


@pytest.fixture
def store(tmp_path: Path, edit_code: EditCode) -> Store:
    del edit_code
    store = Store(tmp_path / "store")
    run(store)
    return store


def checked_against_a_run(store: Store, config: Config | None = None) -> dict[str, tuple[str, ...]]:
    """Return what a plan says, once a run has done exactly that."""
    foresight = foresee(store, config)
    cached = [o.label for o in foresight.outlooks if o.state == "cached"]
    chain = run(store, config)
    assert chain.cached == cached
    return told(foresight)


def test_before_the_first_run_all_would_run(tmp_path: Path, edit_code: EditCode) -> None:
    del edit_code
    store = Store(tmp_path / "empty")
    foresight = foresee(store)
    assert told(foresight) == {
        "1 source": ("has not run here yet",),
        "2 double": ("because source runs",),
        "3 part": ("because double runs",),
        "4 check": ("has not run here yet",),
    }
    assert foresight.outlooks[0].why == ("not looked at before",)
    assert not (store.root / "stages").exists(), "nothing was built"


def test_after_a_run_all_is_cached(store: Store) -> None:
    foresight = foresee(store)
    assert told(foresight) == {}
    assert all(o.why[0].startswith("built 20") for o in foresight.outlooks if o.state == "cached")


def test_a_changed_raw_file_is_named(store: Store) -> None:
    foresight = foresee(store, Config(letters="ac"))
    assert foresight.outlooks[0].why == ("raw: 1.txt changed",)
    assert checked_against_a_run(store, Config(letters="ac")) == {
        "1 source": ("input raw: 1.txt changed",),
        "2 double": ("because source runs",),
        "3 part": ("because double runs",),
    }


def test_a_changed_field_is_named(store: Store) -> None:
    assert checked_against_a_run(store, Config(times=3)) == {
        "2 double": ("config.times: 2 -> 3",),
        "3 part": ("because double runs",),
    }


def test_a_new_batch_alone_would_run(store: Store) -> None:
    found = checked_against_a_run(store, Config(batches=("x", "y", "z")))
    assert list(found) == ["3 part z"]


def test_a_changed_helper_is_named_and_misses_its_stage_alone(
    store: Store, edit_code: EditCode
) -> None:
    edit_code("helper.py", HELPER.replace("2 * x", "x + x"))
    foresight = foresee(store)
    assert told(foresight) == {
        "2 double": ("code toycode.helper: twice",),
        "3 part": ("because double runs",),
    }
    # its outputs come out the same, so what follows is found again: contents decide, not keys
    assert run(store).cached == ["1 source", "3 part x", "3 part y", "4 check"]


def test_comments_docstrings_and_other_modules_change_nothing(
    store: Store, edit_code: EditCode
) -> None:
    edit_code(
        "helper.py", HELPER.replace("    return 2", '    """Twice."""\n    # two\n    return 2')
    )
    edit_code("elsewhere.py", "X = 2\n")
    assert checked_against_a_run(store) == {}


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        (lambda folder: (folder / "out.txt").unlink(), "out.txt is absent"),
        (lambda folder: (folder / "out.txt").write_text(""), "has 0 bytes"),
        (lambda folder: (folder / "receipt.json").unlink(), "no such file"),
    ],
    ids=["deleted", "truncated", "no receipt"],
)
def test_damage_is_named(store: Store, harm: Callable[[Path], None], named: str) -> None:
    (receipt,) = store.stage_receipts("double")
    harm(store.folder(receipt))
    found = told(foresee(store))
    assert named in found["2 double"][0]
    assert found["3 part"] == ("because double runs",)


def test_outputs_that_are_gone_with_their_receipt_would_be_built(store: Store) -> None:
    shutil.rmtree(store.root / "stages" / "check")
    assert checked_against_a_run(store) == {"4 check": ("has not run here yet",)}


def test_force_builds_a_stage_and_what_reads_it(store: Store) -> None:
    assert told(foresee(store, force="double")) == {
        "2 double": ("forced",),
        "3 part": ("because double runs",),
    }
    (before,) = store.stage_receipts("double")
    chain = run(store, force="double")
    assert chain.cached == ["1 source", "4 check"]
    (after,) = store.stage_receipts("double")
    assert after.task_run_id != before.task_run_id


class Resumed(NamedTuple):
    """An order of one stage that counts to three in a file, and is interrupted at two."""

    store: Store

    def run(self, **how: Any) -> Receipt:
        chain = Chain(self.store, **how)
        return flow(lambda: chain.run(count_to_three), name="counts")()

    def foresee(self, **how: Any) -> Foresight:
        foresight = Foresight(self.store, **how)
        foresight.run(count_to_three)
        return foresight


@stage_task("count", "6 count", ["toycode.stage"], resuming=Resuming("at"))
def count_to_three(work: Work) -> Mapping[str, Any]:
    """Count, from where the last attempt stopped."""
    assert work.resumable is not None
    at = work.resumable / "at"
    first = int(at.read_text()) if at.exists() else 0
    at.write_text(str(first + 2))
    if first < 2:
        raise DataError("count", "reach three", first + 2, "Run it again.")
    (work.folder / "out.txt").write_text("three")
    return {"first": first}


@pytest.fixture
def interrupted(tmp_path: Path, edit_code: EditCode) -> Resumed:
    edit_code("helper.py", HELPER)
    resumed = Resumed(Store(tmp_path / "counting"))
    with pytest.raises(DataError, match="reach three"):
        resumed.run()
    return resumed


def test_unfinished_work_is_gone_on_with_and_foretold(interrupted: Resumed) -> None:
    (why,) = told(interrupted.foresee()).values()
    assert why == ("goes on with unfinished work", "has not run here yet")
    receipt = interrupted.run()
    assert (receipt.counts["first"], receipt.continued) == (2, ())
    assert not list((interrupted.store.root / "work").iterdir())


def test_unfinished_work_of_other_code_waits_for_a_word(
    interrupted: Resumed, edit_code: EditCode
) -> None:
    edit_code("helper.py", HELPER.replace("2 * x", "x + x"))
    with pytest.raises(CheckpointError, match=r"toycode\.helper: twice.*shadow accept count"):
        interrupted.run()
    (why,) = told(interrupted.foresee()).values()
    assert "its unfinished work is of other code: code toycode.helper: twice" in why[0]
    accepting = interrupted.foresee(accept=Acceptance("count", "the same sum"))
    assert [a.reason for a in accepting.accepted] == ["the same sum"]
    assert told(interrupted.foresee())["6 count"][0] == "goes on with unfinished work"
    receipt = interrupted.run()
    assert receipt.counts["first"] == 2
    assert [(a.reason, a.what) for a in receipt.continued] == [
        ("the same sum", "code toycode.helper: twice")
    ]


def test_force_begins_again(interrupted: Resumed, edit_code: EditCode) -> None:
    edit_code("helper.py", HELPER.replace("2 * x", "x + x"))
    with pytest.raises(DataError, match="reach three"):
        interrupted.run(force="count")
    assert interrupted.run().counts["first"] == 2


def test_unfinished_work_with_nothing_to_lose_begins_again(
    interrupted: Resumed, edit_code: EditCode
) -> None:
    (folder,) = (interrupted.store.root / "work").iterdir()
    (folder / "at").unlink()
    edit_code("helper.py", HELPER.replace("2 * x", "x + x"))
    with pytest.raises(DataError, match="reach three"):
        interrupted.run()


def test_work_that_does_not_say_whose_it_is_is_refused(interrupted: Resumed) -> None:
    (folder,) = (interrupted.store.root / "work").iterdir()
    (folder / "work.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"work\.json.*Delete the folder"):
        interrupted.run()


def test_accept_keeps_outputs_of_other_code_and_says_why(store: Store, edit_code: EditCode) -> None:
    (old,) = store.stage_receipts("double")
    edit_code("helper.py", HELPER.replace("2 * x", "x + x"))
    accepting = foresee(store, accept=Acceptance("double", "the same sum"))
    (accepted,) = accepting.accepted
    assert told(accepting) == {}
    assert (accepted.reason, accepted.key) == ("the same sum", old.key)
    assert accepted.code == ("code toycode.helper: twice",)
    outlook = foresee(store).outlooks[2]
    assert outlook.receipt is not None
    assert (outlook.receipt.accepted, outlook.receipt.outputs) == (accepted, old.outputs)
    assert "accepted: the same sum" in outlook.why[0]
    assert len(run(store).cached) == 5


def test_accept_is_for_changed_code_only(store: Store, edit_code: EditCode) -> None:
    edit_code("helper.py", HELPER.replace("2 * x", "x + x"))
    wish = Acceptance("double", "no")
    assert foresee(store, Config(times=3), accept=wish).accepted == []
    assert foresee(store, accept=Acceptance("source", "no")).accepted == []


def test_damaged_outputs_are_not_accepted(store: Store, edit_code: EditCode) -> None:
    (old,) = store.stage_receipts("double")
    (store.folder(old) / "out.txt").write_text("edited")
    edit_code("helper.py", HELPER.replace("2 * x", "x + x"))
    with pytest.raises(ConfigError, match=r"must find whole outputs; found .*out\.txt"):
        foresee(store, accept=Acceptance("double", "no"))


def test_names_of_an_order_are_found_without_looking_at_anything(tmp_path: Path) -> None:
    names = foresee_names(Store(tmp_path), order, Config())
    assert names == ["source", "double", "part", "check"]
    assert not list(tmp_path.iterdir())
