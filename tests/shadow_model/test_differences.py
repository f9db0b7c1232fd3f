"""Why a stage is no hit: the file, the field or the function that changed is named."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shadow_model import fingerprint
from shadow_model.differences import nearest, raw_changes
from shadow_model.receipt import Identity, Receipt
from shadow_model.store import Store

MODULE = '''
"""A module."""
LIMIT = 1


def helper(x):
    """Help."""
    return x


class Shape:
    """A shape."""

    size: int = 1

    def area(self):
        return helper(self.size)
'''
Write = Callable[[str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Lay out a first-party module `toystage.code`; return what rewrites it."""
    stamps_ns = itertools.count(10**18, 10**9)
    folder = tmp_path / "toystage"
    folder.mkdir()
    (folder / "__init__.py").touch()

    def write_module(text: str) -> None:
        (folder / "code.py").write_text(text)
        os.utime(folder / "code.py", ns=(next(stamps_ns),) * 2)

    write_module(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(fingerprint, "FIRST_PARTY", ("toystage",))
    return write_module


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def identity(*inputs: Receipt, **config: object) -> Identity:
    return Identity.of("pack", inputs, config, ["toystage.code"], {"torch": "2"})


def build(store: Store, one: Identity, text: str = "x") -> Receipt:
    with store.build(one) as build:
        (build.folder / "out.txt").write_text(text)
    assert build.receipt is not None
    return build.receipt


def source(store: Store, text: str) -> Receipt:
    return build(store, Identity.of("source", (), {"text": text}, []), text)


def lines(store: Store, one: Identity, *inputs: Receipt) -> tuple[str, ...]:
    found = nearest(store, one, inputs)
    assert found is not None
    return found.lines


@pytest.mark.usefixtures("write")
def test_a_stage_without_receipts_has_none_near(store: Store) -> None:
    assert nearest(store, identity(), ()) is None


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("return x\n", "return -x\n", "helper"),
        ("return helper(self.size)", "return 2 * helper(self.size)", "Shape.area"),
        ("LIMIT = 1", "LIMIT = 2", "(top level)"),
        ("size: int = 1", "size: int = 2", "Shape"),
        ("class Shape:", "class Shape(int):", "(top level)"),
    ],
)
def test_the_function_or_class_that_changed_is_named(
    store: Store, write: Write, old: str, new: str, named: str
) -> None:
    build(store, identity())
    write(MODULE.replace(old, new))
    assert lines(store, identity()) == (f"code toystage.code: {named}",)
    found = nearest(store, identity(), ())
    assert found is not None
    assert found.code_only


def test_comments_and_docstrings_are_no_difference(store: Store, write: Write) -> None:
    built = build(store, identity())
    write(MODULE.replace('"""Help."""', '"""Help more."""\n    # because'))
    assert identity().key == built.key
    assert lines(store, identity()) == ()


def test_without_a_note_the_module_is_named(store: Store, write: Write) -> None:
    build(store, identity())
    for note in (store.root / "code").iterdir():
        note.write_text("{")
    write(MODULE.replace("LIMIT = 1", "LIMIT = 2"))
    assert lines(store, identity()) == ("code toystage.code changed",)


@pytest.mark.usefixtures("write")
def test_config_fields_are_named_with_both_values(store: Store) -> None:
    build(store, identity(config={"every": 10, "lengths": [1, 2]}, gone=1))
    one = identity(config={"every": 11, "lengths": [1, 3]}, more="x")
    assert lines(store, one) == (
        "config.config.every: 10 -> 11",
        "config.config.lengths[1]: 2 -> 3",
        "config.gone: 1 -> None",
        "config.more: None -> 'x'",
    )


@pytest.mark.usefixtures("write")
def test_the_environment_is_named(store: Store) -> None:
    build(store, identity())
    other = Identity.of("pack", (), {}, ["toystage.code"], {"torch": "3"})
    assert lines(store, other) == ("torch: '2' -> '3'",)


@pytest.mark.usefixtures("write")
def test_the_input_and_its_file_are_named(store: Store) -> None:
    old, new = source(store, "a"), source(store, "b")
    build(store, identity(old))
    assert lines(store, identity(new), new) == ("input source: out.txt changed",)
    (store.folder(old) / "receipt.json").unlink()
    assert lines(store, identity(new), new) == ("input source changed",)
    assert lines(store, identity()) == ("reads nothing, read source",)


@pytest.mark.usefixtures("write")
def test_the_nearest_receipt_is_compared_with(store: Store) -> None:
    build(store, identity(names=["a"], every=1))
    build(store, identity(names=["b"], every=1))
    assert lines(store, identity(names=["a"], every=2)) == ("config.every: 1 -> 2",)


def test_raw_files_are_named() -> None:
    old = {"files": [{"name": n, "sha256": n} for n in "abc"]}
    new = {"files": [{"name": n, "sha256": d} for n, d in (("a", "a"), ("b", "x"), ("d", "d"))]}
    assert raw_changes(old, new) == ["raw: b changed, d is new, c is gone"]
    assert raw_changes(old, old) == []
