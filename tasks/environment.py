"""What else than inputs, config and code changes a stage's result."""

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

_CPUINFO = Path("/proc/cpuinfo")


def torch_environment(_inputs: Mapping[str, Any]) -> dict[str, str]:
    """Return the device that computes and torch's version: they decide the last bits."""
    return {"device": _device_name(), "torch": torch.__version__}


def machine_environment(inputs: Mapping[str, Any]) -> dict[str, str]:
    """Return what a speed depends on: the same, and the model of the processor."""
    return {**torch_environment(inputs), "processor": _processor_name()}


def gpu(device: str) -> str | None:
    """Return the name of the GPU that a config's `device` means, for its lock; None for the CPU."""
    if device == "cpu" or not torch.cuda.is_available():
        return None
    return f"gpu-{torch.cuda.get_device_properties(0).uuid}"


def _device_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def _processor_name() -> str:
    if _CPUINFO.exists():
        for line in _CPUINFO.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
