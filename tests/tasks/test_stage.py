"""The cache rule on real flows: hits, misses, damage, retries, edges, concurrency.

Tiny real stages: `source` writes a file, `double` reads it, `join` reads several.
"""

import errno
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from prefect.client.schemas.objects import State
from prefect.states import Failed
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import Field

from shadow_model.errors import DataError
from shadow_model.receipt import Receipt
from shadow_model.schema import NOT_IN_KEY, Schema
from shadow_model.store import RECEIPT, Store
from shadow_model.table.config import TableConfig
from tasks.chain import Chain
from tasks.stage import (
    InterruptedWorkError,
    Resuming,
    StageTask,
    Work,
    may_pass_when_retried,
    stage_task,
)
from tasks.table import make_table

CODE = ["shadow_model.table.layout"]


class Config(Schema):
    """Config of the toy stages."""

    times: int = 2
    word: str = "source"
    place: Path | None = Field(None, json_schema_extra=NOT_IN_KEY)


def write_source(work: Work, config: Config) -> Mapping[str, Any]:
    """Write the config's word."""
    (work.folder / "out.txt").write_text(config.word * config.times)
    return {"letters": len(config.word) * config.times}


source = stage_task("source", "0 source", CODE)(write_source)


@stage_task("double", "1 double", CODE)
def double(work: Work, source: Receipt, config: Config) -> Mapping[str, Any]:
    """Repeat the source."""
    text = (work.of(source) / "out.txt").read_text()
    (work.folder / "out.txt").write_text(text * config.times)
    work.progress(1, 1, "letters")
    return {"letters": len(text) * config.times}


@stage_task("join", "2 join", CODE)
def join(work: Work, parts: Sequence[Receipt], names: Sequence[str]) -> Mapping[str, Any]:
    """Append all parts."""
    texts = [(work.of(part) / "out.txt").read_text() for part in parts]
    (work.folder / "out.txt").write_text("".join(texts) + "".join(names))
    return {"parts": len(texts), "nested": {"share": 0.5}, "list": ["a|b"]}


def run_toys(store: Path, one: Config, two: Config | None = None, refresh: bool = False) -> Chain:
    """Run source -> double -> two joins in a flow and return its chain."""
    chain = Chain(Store(store), refresh)

    @flow(name="toys", task_runner=ThreadPoolTaskRunner(max_workers=2))  # type: ignore[arg-type]
    def toys() -> None:
        first = chain.run(source, one)
        second = chain.after(first).run(double, first, two or one)
        chain.map(join, {"2 join a": ["source"], "2 join b": ["1"]}, "names", parts=[second])

    toys()
    return chain


@pytest.mark.usefixtures("prefect_api")
class TestCache:
    """Hits and misses."""

    def test_second_run_is_cached_and_says_so(self, tmp_path: Path) -> None:
        first = run_toys(tmp_path, Config())
        assert first.cached == []
        assert first.summary() == "4 of 4 stages ran, 0 cached"
        second = run_toys(tmp_path, Config())
        assert second.cached == ["0 source", "1 double", "2 join a", "2 join b"]
        assert second.summary() == "nothing ran: all 4 stages cached"
        assert second.receipts == first.receipts

    def test_the_task_builds_under_the_key_of_its_policy(self, tmp_path: Path) -> None:
        chain = run_toys(tmp_path, Config())
        receipt = chain.receipts[1]
        inputs = {"source": chain.receipts[0], "config": Config()}
        policy = double.bind(chain.store).cache_policy
        assert policy.compute_key(None, inputs, {}) == f"double-{receipt.key}"
        assert (chain.store.folder(receipt) / RECEIPT).exists()

    def test_paths_do_not_enter_keys(self, tmp_path: Path) -> None:
        here = run_toys(tmp_path / "a", Config(place=tmp_path))
        there = run_toys(tmp_path / "b", Config(place=Path("/elsewhere")))
        assert [r.key for r in here.receipts] == [r.key for r in there.receipts]
        assert there.cached == [], "another store holds nothing yet"

    def test_a_changed_field_misses_its_stage_and_what_follows(self, tmp_path: Path) -> None:
        run_toys(tmp_path, Config())
        assert run_toys(tmp_path, Config(), Config(times=3)).cached == ["0 source"]

    def test_equal_content_of_an_earlier_stage_is_a_hit(self, tmp_path: Path) -> None:
        run_toys(tmp_path, Config(word="aa", times=1), Config())
        again = run_toys(tmp_path, Config(word="a", times=2), Config())
        assert again.cached == ["1 double", "2 join a", "2 join b"]

    def test_changed_code_misses(self, tmp_path: Path) -> None:
        chain = run_toys(tmp_path, Config())
        other = StageTask("source", "0 source", write_source, ("shadow_model.schema",))
        assert other.identity({"config": Config()}).key != chain.receipts[0].key

    def test_the_stages_own_file_counts_and_what_all_stages_share_does_not(self) -> None:
        receipt = Receipt(stage="sources", key="0" * 32)
        code = make_table.identity({"sources": receipt, "config": TableConfig()}).code
        assert "tasks.table" in code
        assert "shadow_model.data.table_stage" in code
        assert not {"tasks.stage", "tasks.chain", "tasks.artifacts"} & set(code)

    @pytest.mark.parametrize(
        "harm",
        [
            lambda folder: (folder / "out.txt").unlink(),
            lambda folder: (folder / "out.txt").write_text("short"),
            lambda folder: (folder / "out.txt").write_text("sourcesourcesourcesourcX"[:24]),
            lambda folder: (folder / RECEIPT).unlink(),
            lambda folder: (folder / RECEIPT).write_text('{"stage": "double"'),
        ],
        ids=["deleted", "truncated", "edited", "no receipt", "half a receipt"],
    )
    def test_damage_is_rebuilt(
        self, tmp_path: Path, harm: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        chain = run_toys(tmp_path, Config())
        folder = chain.store.folder(chain.receipts[1])
        whole = (folder / "out.txt").read_text()
        harm(folder)
        again = run_toys(tmp_path, Config())
        assert again.cached == ["0 source", "2 join a", "2 join b"]
        assert (folder / "out.txt").read_text() == whole
        assert "1 double is built again" in caplog.text

    def test_refresh_builds_again(self, tmp_path: Path) -> None:
        run_toys(tmp_path, Config())
        assert run_toys(tmp_path, Config(), refresh=True).cached == []

    def test_prefect_records_are_not_needed_for_a_hit(self, tmp_path: Path) -> None:
        run_toys(tmp_path, Config())
        for record in (tmp_path / "results").iterdir():
            record.unlink()
        assert len(run_toys(tmp_path, Config()).cached) == 4

    def test_two_builders_of_one_key_build_once(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        builds: list[str] = []
        together = threading.Barrier(2)

        def slow(work: Work, config: Config) -> Mapping[str, Any]:
            builds.append(config.word)
            for _attempt in range(400):  # until the other has asked for the lock, and was told
                if "Another run builds slow-" in caplog.text:
                    break
                threading.Event().wait(0.05)
            return write_source(work, config)

        stage = stage_task("slow", "0 slow", CODE)(slow)

        @flow
        def one() -> Receipt:
            together.wait()
            return Chain(Store(tmp_path)).run(stage, Config())

        with ThreadPoolExecutor(2) as pool:
            receipts = [future.result() for future in [pool.submit(one), pool.submit(one)]]
        assert builds == ["source"]
        assert "Another run builds slow-" in caplog.text
        assert receipts[0] == receipts[1]


@pytest.mark.usefixtures("prefect_api")
class TestRun:
    """What a person sees of a run."""

    def test_names_edges_and_artifacts(self, tmp_path: Path) -> None:
        chain = Chain(Store(tmp_path))

        @flow(name="seen", flow_run_name="seen", task_runner=ThreadPoolTaskRunner(max_workers=2))  # type: ignore[arg-type]
        def seen() -> None:
            first = chain.run(source, Config())
            second = chain.run(double, first, Config())
            third = chain.map(join, {"2 join 0-1": ["source"]}, "names", parts=[second])
            chain.after(first).run(source.relabelled("3 source"), Config(word=third[0].stage))
            quiet = replace(join, label="4 join", undrawn=frozenset({"parts"}))
            chain.after(second).run(quiet, parts=chain.receipts, names=["source"])

        seen()
        edges = dict(task_run_edges("seen"))
        assert edges == {
            "0 source": set(),
            "1 double": {"0 source"},
            "2 join 0-1": {"1 double"},
            "3 source": {"0 source"},
            "4 join": {"1 double"},
        }
        assert artifact_keys("seen") >= {"0-source", "1-double", "2-join-0-1", "3-source", "4-join"}

    def test_receipts_name_their_runs(self, tmp_path: Path) -> None:
        receipt = run_toys(tmp_path, Config()).receipts[1]
        assert receipt.flow_run_id
        assert receipt.task_run_id
        assert [i.stage for i in receipt.inputs] == ["source"]
        assert receipt.counts == {"letters": 24}

    def test_transient_faults_are_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tasks.stage.RETRY_DELAYS_S", (0.0,))
        attempts: list[int] = []

        def unlucky(work: Work, config: Config) -> Mapping[str, Any]:
            attempts.append(1)
            if len(attempts) == 1:
                raise OSError(errno.EIO, "disk away for a moment")
            return write_source(work, config)

        stage = stage_task("unlucky", "0 unlucky", CODE)(unlucky)
        flow(lambda: Chain(Store(tmp_path)).run(stage, Config()), name="unlucky")()
        assert len(attempts) == 2

    def test_bad_input_is_not_tried_again_and_leaves_nothing(self, tmp_path: Path) -> None:
        attempts: list[int] = []

        def refuse(work: Work, config: Config) -> Mapping[str, Any]:
            attempts.append(1)
            (work.folder / "half.txt").write_text(config.word)
            raise DataError("file", "be whole", "half", "Copy it again.")

        stage = stage_task("refuse", "0 refuse", CODE)(refuse)
        with pytest.raises(DataError, match="must be whole; found half"):
            flow(lambda: Chain(Store(tmp_path)).run(stage, Config()), name="refuse")()
        assert len(attempts) == 1
        assert not list(tmp_path.rglob("half.txt"))
        assert not (tmp_path / "stages" / "refuse").exists()

    def test_resumable_work_outlives_a_failed_attempt_only(self, tmp_path: Path) -> None:
        def resume(work: Work, config: Config) -> Mapping[str, Any]:
            assert work.resumable is not None
            checkpoint = work.resumable / "checkpoint"
            if not checkpoint.exists():
                checkpoint.write_text("step 1")
                raise DataError("run", "end", "no end", "Run again.")
            return write_source(work, config)

        stage = stage_task("resume", "0 resume", CODE, resuming=Resuming("checkpoint"))(resume)
        run = flow(lambda: Chain(Store(tmp_path)).run(stage, Config()), name="resume")
        with pytest.raises(DataError):
            run()
        run()
        assert not list((tmp_path / "work").iterdir())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.EIO, "I/O"), True),
        (ConnectionResetError(), True),
        (InterruptedWorkError("killed"), True),
        (OSError(errno.ENOSPC, "full"), False),
        (FileNotFoundError(errno.ENOENT, "gone"), False),
        (DataError("a", "b", "c", "d"), False),
        (ValueError("bug"), False),
    ],
    ids=repr,
)
def test_only_what_can_pass_is_retried(error: Exception, expected: bool) -> None:
    state: State[Any] = Failed(data=error)
    assert may_pass_when_retried(None, None, state) is expected  # type: ignore[arg-type]


def task_run_edges(flow_run_name: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each task run's name and the names of those that its inputs come from."""
    wanted = FlowRunFilter(name=FlowRunFilterName(any_=[flow_run_name]))
    with get_client(sync_client=True) as client:
        runs = until_recorded(lambda: client.read_task_runs(flow_run_filter=wanted), 5)
    names = {run.id: run.name for run in runs}
    for run in runs:
        inputs = {i for values in run.task_inputs.values() for i in values}
        yield run.name, {names[i.id] for i in inputs if getattr(i, "id", None) in names}


def until_recorded(read: Any, count: int) -> list[Any]:
    """Read until `count` task runs have ended: the API records them with a short delay."""
    for _attempt in range(200):
        runs = [run for run in read() if run.state and run.state.is_final()]
        if len(runs) >= count:
            return runs
        threading.Event().wait(0.05)
    raise AssertionError(f"{count} task runs were not recorded")


def artifact_keys(flow_run_name: str) -> set[str]:
    """Return the keys of a flow run's artifacts: of all, a session has more than one page."""
    wanted = FlowRunFilter(name=FlowRunFilterName(any_=[flow_run_name]))
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(flow_run_filter=wanted)
    return {artifact.key or "" for artifact in found}
