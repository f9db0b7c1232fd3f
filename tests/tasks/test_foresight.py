"""A plan says what a run then does, and why; what is accepted stays, with its reason."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from prefect import flow
from prefect.task_runners import ThreadPoolTaskRunner

from shadow_model.errors import ConfigError
from shadow_model.receipt import FileRecord, Receipt
from shadow_model.schema import Schema
from shadow_model.store import Store
from tasks.chain import Chain
from tasks.foresight import Acceptance, Foresight, foresee_names
from tasks.raw import Look
from tasks.stage import Work, stage_task

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


def test_force_forgets_unfinished_work(store: Store) -> None:
    (receipt,) = store.stage_receipts("check")
    (store.work(f"check-{receipt.key}") / "checkpoint").write_text("old")
    run(store, force="check")
    assert not list((store.root / "work").iterdir())


def test_accept_keeps_outputs_of_other_code_and_says_why(store: Store, edit_code: EditCode) -> None:
    (old,) = store.stage_receipts("double")
    edit_code("helper.py", HELPER.replace("2 * x", "x + x"))
    accepting = foresee(store, accept=Acceptance("double", "the same sum"))
    (receipt,) = accepting.accepted
    assert told(accepting) == {}
    assert receipt.accepted is not None
    assert (receipt.accepted.reason, receipt.accepted.key) == ("the same sum", old.key)
    assert receipt.accepted.code == ("code toycode.helper: twice",)
    assert receipt.outputs == old.outputs
    outlook = foresee(store).outlooks[2]
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
