"""Sources are parsed from several threads at once, whatever a garbage collection lets in."""

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from shadow_model.syntax import parse_source

SOURCE = "def f(x):\n" + "".join(f"    y{i} = [x + {i}, (x, {{x: {i}}})]\n" for i in range(400))


@pytest.fixture
def collections_let_others_in() -> Iterator[None]:
    def let_in(*_: object) -> None:
        time.sleep(0)

    gc.callbacks.append(let_in)
    yield
    gc.callbacks.remove(let_in)


@pytest.mark.usefixtures("collections_let_others_in")
def test_threads_do_not_disturb_one_another() -> None:
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(parse_source, [SOURCE] * 64))
    assert {len(tree.body[0].body) for tree in trees} == {400}  # type: ignore[attr-defined]


def test_what_is_no_python_is_a_syntax_error() -> None:
    with pytest.raises(SyntaxError):
        parse_source("def")
