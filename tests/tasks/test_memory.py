"""A device out of memory says which field needs less."""

import pytest
import torch

from tasks.memory import naming_memory
from tasks.stage import DeviceMemoryError


def test_torchs_error_is_told_with_the_field() -> None:
    told = pytest.raises(DeviceMemoryError, match=r"raise speed\.micro_batches above 1")
    with told, naming_memory("raise speed.micro_batches above 1"):
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_other_errors_pass_as_they_are() -> None:
    with pytest.raises(ValueError, match="bug"), naming_memory("nothing"):
        raise ValueError("bug")
