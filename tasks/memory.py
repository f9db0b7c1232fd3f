"""A device out of memory, told with the config field that needs less of it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tasks.stage import DeviceMemoryError


@contextmanager
def naming_memory(advice: str) -> Iterator[None]:
    """Turn torch's error into one that is tried once more and says what to change.

    Args:
        advice: What to do, as "raise speed.micro_batches".
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        torch.cuda.empty_cache()
        raise DeviceMemoryError(advice) from error
