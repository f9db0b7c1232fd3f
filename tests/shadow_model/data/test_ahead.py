from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from shadow_model.data.ahead import map_ahead


def test_results_come_in_order_though_the_first_ends_last() -> None:
    last_done = Event()

    def work(item: int) -> int:
        if item == 0:
            assert last_done.wait(10)
        elif item == 3:
            last_done.set()
        return item * item

    with ThreadPoolExecutor(2) as pool:
        assert list(map_ahead(pool, work, range(20))) == [i * i for i in range(20)]


def test_only_a_few_items_are_taken_before_the_first_result_is_used() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for i in range(1000):
            taken.append(i)
            yield i

    with ThreadPoolExecutor(2) as pool:
        results = map_ahead(pool, str, items())
        assert next(results) == "0"
        assert len(taken) < 20


def test_an_exception_comes_out_at_its_place() -> None:
    with ThreadPoolExecutor(2) as pool:
        results = map_ahead(pool, lambda i: 1 // i, [1, 1, 0, 1])
        assert [next(results), next(results)] == [1, 1]
        with pytest.raises(ZeroDivisionError):
            next(results)
