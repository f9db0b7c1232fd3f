"""What the tests of bad input share: faults, a memory limit, and a canary that no file may touch.

Each file here has a table `READERS`: file name -> Reader(write, read, loose). `write` makes a sound
file, `read` reads it as the project does. A loose format has no structure of its own (text, bins):
some damage leaves it readable, and then any result is right.
"""

import os
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shadow_model.errors import ShadowError

Read = Callable[[Path], object]
Check = Callable[[Read, Path], ShadowError]
_SPARE_BYTES = 1 << 30
_FEWEST_SIGNS = 3
NUM_CHANGES = int(os.environ.get("FUZZ_EXAMPLES", "15"))


class Canary:
    """Pickles as a call that makes a file; unpickled, it has run code."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Canary]:
    """An object whose unpickling shows; that it did not is checked at the end."""
    canary = Canary(tmp_path / "canary")
    yield canary
    assert not canary.path.exists(), "code of the file was run"


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Let the process reserve a gibibyte more than it has, and no more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _SPARE_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture
def refusal() -> Check:
    """Read a file in bounded memory; return the error of ours that must come, once checked."""

    def refused(read: Read, path: Path) -> ShadowError:
        with pytest.raises(ShadowError) as caught, bounded_memory():
            read(path)
        error = caught.value
        assert path.name in error.where or path.stem in error.where, str(error)
        for part in (error.must, error.found, error.fix):
            assert len(part) >= _FEWEST_SIGNS or part.isdigit(), f"says too little: {error}"
        assert error.fix[0].isupper()
        assert error.fix.endswith("."), error.fix
        assert "Error:" not in error.found
        return error

    return refused


@pytest.fixture
def tolerance() -> Callable[[Read, Path], bool]:
    """Read a damaged file in bounded memory: an error of ours, or a result; tell whether a result.

    Anything else ends the test.
    """

    def read_it(read: Read, path: Path) -> bool:
        try:
            with bounded_memory():
                read(path)
        except ShadowError:
            return False
        return True

    return read_it


Change = tuple[str, float, bytes]
WORDS = (
    b"\0",
    b"\xff",
    b"\xff\xff\xff\x7f",
    bytes(8),
    b"\xff" * 8,
    b"\0\0\0\x80",
    b"\n",
    b'"',
    b"[[",
)
NUMBERS = (b"-1", b"1e999", b"NaN", b"null", b"[]", b"{}", b'"x"', b"9" * 30, b"0", b"1.5", b"true")
_NUMBER = re.compile(rb"-?\d+(\.\d+)?")


@st.composite
def one_change(draw: st.DrawFn) -> Change:
    """Draw a change of a file: what is done, where (a share of its length), and with what."""
    how = draw(st.sampled_from(["flip", "put", "insert", "cut", "drop", "double", "number"]))
    content = NUMBERS if how == "number" else WORDS
    return how, draw(st.floats(0, 1, exclude_max=True)), draw(st.sampled_from(content))


def changed(content: bytes, change: Change) -> bytes:
    """Return a file's bytes after a change."""
    how, share, new = change
    at = int(share * len(content))
    before, after = content[:at], content[at:]
    if how == "number":
        found = list(_NUMBER.finditer(content))
        if not found:
            return content
        start, end = found[int(share * len(found))].span()
        return content[:start] + new + content[end:]
    if how == "flip" and after:
        return before + bytes([after[0] ^ new[0] ^ 1]) + after[1:]
    results = {
        "put": before + new + after[len(new) :],
        "insert": before + new + after,
        "cut": before,
        "drop": before + after[9 * len(new) :],
        "double": before + after[:64] + after,
    }
    return results.get(how, content)


@pytest.fixture
def changes(tolerance: Callable[[Read, Path], bool]) -> Callable[..., None]:
    """Read a file after many changes of its bytes, each time as `tolerance` does.

    The changes are the same every time; FUZZ_EXAMPLES=5000 tries more of them.
    """

    def check(read: Read, path: Path, share: float = 1.0) -> None:
        content = path.read_bytes()

        @settings(
            max_examples=max(2, int(share * NUM_CHANGES)),
            derandomize=True,
            deadline=None,
            database=None,
        )
        @given(st.lists(one_change(), min_size=1, max_size=4))
        def read_changed(drawn: list[Change]) -> None:
            path.write_bytes(reduce(changed, drawn, content))
            tolerance(read, path)

        read_changed()

    return check


def absent(path: Path) -> None:
    path.unlink()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut_after(share: float) -> Callable[[Path], None]:
    def cut(path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: max(1, int(len(content) * share) - 4)])

    return cut


def page_of_the_web(path: Path) -> None:
    path.write_bytes(b"<!DOCTYPE html><html><body>404: not found</body></html>" * 20)


def zeros(path: Path) -> None:
    path.write_bytes(bytes(4095))


def program(path: Path) -> None:
    path.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 9)


GONE = (absent, folder, dangling_link, link_to_itself)
DAMAGE = (empty, page_of_the_web, zeros, program)
CUTS = {"cut at the head": 0.02, "cut in the middle": 0.5, "cut at the end": 1.0}


@pytest.fixture(params=GONE, ids=lambda fault: fault.__name__)
def gone(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    """A way for a file not to be there."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(
    params=[*DAMAGE, *map(cut_after, CUTS.values())],
    ids=[*(fault.__name__ for fault in DAMAGE), *CUTS],
)
def damaged(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    """A way for a file to be something else, or a part of what it was."""
    return request.param  # type: ignore[no-any-return]
