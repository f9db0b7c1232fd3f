"""The device of a config, and its memory."""

import subprocess
import sys

import pytest
import torch

from shadow_model.errors import ConfigError
from shadow_model.train.device import choose_device


def test_cpu_computes_in_float32_and_sets_threads() -> None:
    before = torch.get_num_threads()
    device = choose_device("cpu", "auto", 1)
    assert (device.device.type, device.dtype) == ("cpu", torch.float32)
    assert device.describe() == {"device": "cpu", "dtype": "float32", "threads": 1}
    torch.set_num_threads(before)


def test_bfloat16_products_under_autocast() -> None:
    a = torch.ones(4, 4)
    with choose_device("cpu", "bfloat16", None).autocast():
        assert (a @ a).dtype is torch.bfloat16
    with choose_device("cpu", "float32", None).autocast():
        assert (a @ a).dtype is torch.float32


PEAKS = """
import torch
from shadow_model.train.device import choose_device
device = choose_device("cpu", "auto", None)
device.reset_peak()
print(device.peak_bytes())
array = torch.ones(50 << 20, dtype=torch.uint8)
del array
print(device.peak_bytes())
device.reset_peak()
print(device.peak_bytes())
"""


def test_peak_memory_sees_a_large_array_until_it_is_reset() -> None:
    """In a process of its own: the peak is the process's, and other tests' garbage, freed between
    two readings, would hide the array."""
    found = subprocess.run(
        [sys.executable, "-c", PEAKS], capture_output=True, text=True, check=True
    )
    before, peak, after = map(int, found.stdout.split())
    # 5 MiB of other pages may come and go
    assert peak >= before + (45 << 20)
    assert after <= peak - (45 << 20)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has CUDA")
def test_absent_cuda_is_named() -> None:
    with pytest.raises(ConfigError, match="no CUDA device"):
        choose_device("cuda", "auto", None)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda_is_chosen_and_computes_in_bfloat16() -> None:
    device = choose_device("auto", "auto", None)
    assert (device.device.type, device.dtype) == ("cuda", torch.bfloat16)
