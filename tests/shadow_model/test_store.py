"""A stage is whole or absent: no half-written, altered or mixed output is taken for a result."""

import json
import multiprocessing
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from shadow_model import store as store_module
from shadow_model.errors import DataError
from shadow_model.receipt import Identity, Receipt
from shadow_model.store import RECEIPT, Build, Store, read_receipt, write_whole

FILES = {"a.bin": b"0123456789", "deep/b.txt": b"text"}


def identity(seed: int = 0, stage: str = "pack") -> Identity:
    """Return the identity of a stage without inputs."""
    return Identity.of(stage, (), {"seed": seed}, ["shadow_model.table.layout"])


def fill(build: Build, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = build.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def built(store: Store, files: dict[str, bytes] | None = None, seed: int = 0) -> Receipt:
    """Build a stage and return its receipt."""
    with store.build(identity(seed)) as build:
        fill(build, FILES if files is None else files)
    assert build.receipt is not None
    return build.receipt


def leftovers(store: Store) -> list[Path]:
    return list((store.root / "tmp").iterdir())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_built_stage_is_found_with_what_it_wrote(store: Store) -> None:
    with store.build(identity(), "flow", "task") as build:
        fill(build, FILES)
        build.counts["tokens"] = 7
    found = store.find("pack", identity().key)
    assert found == build.receipt
    assert found is not None
    assert [(f.name, f.bytes) for f in found.outputs] == [("a.bin", 10), ("deep/b.txt", 4)]
    assert (found.counts, found.flow_run_id, found.task_run_id) == ({"tokens": 7}, "flow", "task")
    assert found.seconds >= 0
    assert found.host
    assert found.started <= found.ended
    assert (store.folder(found) / "a.bin").read_bytes() == b"0123456789"
    assert not leftovers(store)


def test_absent_stage_is_not_found(store: Store) -> None:
    assert store.find("pack", "0" * 32) is None
    built(store)
    assert store.find("pack", identity(seed=1).key) is None
    assert store.find("remap", identity().key) is None


def test_store_that_was_moved_still_hits(store: Store, tmp_path: Path) -> None:
    receipt = built(store)
    shutil.move(store.root, tmp_path / "moved")
    assert Store(tmp_path / "moved").find("pack", receipt.key, deep=True) == receipt


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "absent"), (b"0123", "4 bytes"), (b"012345678X", "altered"), (b"", "0 bytes")],
)
@pytest.mark.parametrize("deep", [False, True])
def test_deleted_truncated_or_edited_output_is_a_miss_and_says_why(
    store: Store, content: bytes | None, reason: str, deep: bool
) -> None:
    receipt = built(store)
    path = store.folder(receipt) / "a.bin"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert store.find("pack", receipt.key, deep) is None
    assert reason in str(store.verify(receipt, deep))
    assert "a.bin" in str(store.verify(receipt, deep))


def test_edit_that_hides_its_time_is_found_when_asked(store: Store) -> None:
    receipt = built(store)
    path = store.folder(receipt) / "a.bin"
    os.utime(path, ns=(10**18, 10**18))
    assert store.find("pack", receipt.key) is not None  # the memo now vouches
    path.write_bytes(b"XXXXXXXXXX")
    os.utime(path, ns=(10**18, 10**18))
    assert store.find("pack", receipt.key, deep=True) is None


def test_output_replaced_by_a_folder_is_a_miss(store: Store) -> None:
    receipt = built(store)
    path = store.folder(receipt) / "a.bin"
    path.unlink()
    path.mkdir()
    assert store.find("pack", receipt.key) is None


def test_receipt_without_outputs_and_outputs_without_receipt_are_misses(store: Store) -> None:
    receipt = built(store)
    folder = store.folder(receipt)
    text = (folder / RECEIPT).read_bytes()
    (folder / RECEIPT).unlink()
    assert store.find("pack", receipt.key) is None
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / RECEIPT).write_bytes(text)
    assert store.find("pack", receipt.key) is None


@pytest.mark.parametrize("cut", [0, 40, -2])
def test_cut_receipt_is_a_miss_and_the_stage_can_be_built_again(store: Store, cut: int) -> None:
    receipt = built(store)
    path = store.folder(receipt) / RECEIPT
    path.write_bytes(path.read_bytes()[:cut])
    assert store.find("pack", receipt.key) is None
    assert store.find("pack", built(store).key) is not None


def test_receipt_copied_to_another_key_is_a_miss(store: Store) -> None:
    receipt = built(store)
    other = identity(seed=1)
    shutil.copytree(store.folder(receipt), store.folder(other))
    assert store.find("pack", other.key) is None


def test_failed_build_leaves_nothing_and_keeps_what_stood(store: Store) -> None:
    first = built(store)

    def fail() -> None:
        with store.build(identity()) as build:
            fill(build, {"a.bin": b"half"})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert store.find("pack", first.key) == first
    assert not leftovers(store)


def test_build_killed_before_its_end_is_not_taken_for_whole(store: Store) -> None:
    def die(root: Path) -> None:
        with Store(root).build(identity()) as build:
            fill(build, FILES)
            os._exit(9)

    process = multiprocessing.get_context("fork").Process(target=die, args=(store.root,))
    process.start()
    process.join(60)
    assert process.exitcode == 9
    assert store.find("pack", identity().key) is None
    assert list(store.receipts()) == []
    assert str(process.pid) in leftovers(store)[0].name.split(".")
    assert store.find("pack", built(store).key) is not None


def test_rebuild_replaces_and_frees_what_stood(store: Store) -> None:
    built(store)
    receipt = built(store, {"a.bin": b"new"})
    assert store.find("pack", receipt.key) == receipt
    assert {p.name for p in store.folder(receipt).iterdir()} == {"a.bin", RECEIPT}
    assert not leftovers(store)


def test_two_builds_of_one_key_at_once_never_mix(store: Store) -> None:
    num_builders, barrier = 6, threading.Barrier(6)
    failures: list[BaseException] = []

    def run(number: int) -> None:
        own = Store(store.root)
        try:
            for _ in range(5):
                with own.build(identity()) as build:
                    fill(build, {f"only_{number}": b"x" * (number + 1), "shared": bytes([number])})
                    barrier.wait(60)
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(num_builders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    found = store.find("pack", identity().key, deep=True)
    assert found is not None
    on_disk = {p.name for p in store.folder(found).iterdir()}
    assert on_disk == {f.name for f in found.outputs} | {RECEIPT}
    assert not leftovers(store)


def test_figures_of_numpy_do_not_fail_a_finished_stage(store: Store) -> None:
    with store.build(identity()) as build:
        build.counts.update(tokens=np.int64(5), loss=np.float32(0.5), kinds={"text": np.uint8(1)})
    found = store.find("pack", identity().key)
    assert found is not None
    assert found.counts == {"tokens": 5, "loss": 0.5, "kinds": {"text": 1}}
    assert json.loads((store.folder(found) / RECEIPT).read_text())["counts"] == found.counts


def test_receipts_come_oldest_first_and_a_garbled_one_is_named(store: Store) -> None:
    keys = [built(store, seed=seed).key for seed in range(3)]
    for age, key in enumerate(keys):
        path = store.root / "stages" / "pack" / key / RECEIPT
        os.utime(path, ns=(10**18 - age * 10**9,) * 2)
    assert [r.key for r in store.receipts()] == keys[::-1]
    path.write_text("{}")
    with pytest.raises(DataError, match=keys[-1]):
        list(store.receipts())


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, "no such file"),
        (b"not json", "receipt in JSON"),
        (b"\xff\xfe", "JSON"),
        (b'{"stage": "pack"}', "key"),
        (b'{"stage": "pack", "key": "k", "version": 2}', "version"),
    ],
)
def test_unreadable_receipt_is_refused_by_name(
    tmp_path: Path, content: bytes | None, found: str
) -> None:
    path = tmp_path / RECEIPT
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=found) as caught:
        read_receipt(path)
    assert str(path) in str(caught.value)


def test_write_whole_replaces_and_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["file"]


def test_write_whole_that_fails_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_module.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_readers_never_see_a_part_of_write_whole(tmp_path: Path) -> None:
    path, size = tmp_path / "file", 1 << 16
    write_whole(path, b"a" * size)
    seen: set[bytes] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            content = path.read_bytes()
            seen.add(content[:1] + content[-1:] + str(len(content)).encode())

    thread = threading.Thread(target=read)
    thread.start()
    for letter in b"bcdefghij" * 5:
        write_whole(path, bytes([letter]) * size)
    stop.set()
    thread.join()
    assert all(entry[:1] == entry[1:2] and entry[2:] == str(size).encode() for entry in seen)
