"""Where training computes, and how much memory it took."""

import resource
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from shadow_model.errors import ConfigError

DeviceName = Literal["auto", "cpu", "cuda"]
DtypeName = Literal["auto", "float32", "bfloat16"]
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


class Device(NamedTuple):
    """A device, and the dtype of matrix products there.

    Attributes:
        device: torch's device.
        dtype: float32, or bfloat16 under autocast with float32 weights.
    """

    device: torch.device
    dtype: torch.dtype

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context that forwards run in."""
        enabled = self.dtype is not torch.float32
        return torch.autocast(self.device.type, self.dtype, enabled=enabled)

    def synchronise(self) -> None:
        """Wait until the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def reset_peak(self) -> None:
        """Count peak memory from here, where the system can."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        elif _CLEAR.exists():
            _CLEAR.write_text(_RESET_PEAK)

    def peak_bytes(self) -> int:
        """Return the most memory held: allocated on CUDA, resident of the process on the CPU."""
        if self.device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self.device))
        if _STATUS.exists():
            lines = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
            return int(lines["VmHWM"].split()[0]) * 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    def describe(self) -> dict[str, str | int]:
        """Return what records say of the device."""
        name = "cpu"
        if self.device.type == "cuda":
            name = torch.cuda.get_device_name(self.device)
        dtype = str(self.dtype).removeprefix("torch.")
        return {"device": name, "dtype": dtype, "threads": torch.get_num_threads()}


def choose_device(device: DeviceName, dtype: DtypeName, threads: int | None) -> Device:
    """Return the device of a config, with the process's CPU threads set.

    Raises:
        ConfigError: CUDA is asked for and absent.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise ConfigError("device", "be available", "no CUDA device", "Say device = 'auto'.")
    kind = "cuda" if has_cuda and device != "cpu" else "cpu"
    if dtype == "auto":
        dtype = "bfloat16" if kind == "cuda" else "float32"
    return Device(torch.device(kind), torch.float32 if dtype == "float32" else torch.bfloat16)
