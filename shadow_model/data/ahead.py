"""A map over chunks that works ahead on other threads and gives results back in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

WORKERS = 2
"""Threads of a stage that streams: numpy, pyarrow, zlib and the system calls let go of the GIL."""
_DEPTH = 3 * WORKERS


def map_ahead(
    pool: Executor, function: Callable[[ItemT], ResultT], items: Iterable[ItemT]
) -> Iterator[ResultT]:
    """Yield `function(item)` for every item, in order; only a few items are in memory at once.

    An exception of the function comes out where its result would have stood.
    """
    waiting: deque[Future[ResultT]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > _DEPTH:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
