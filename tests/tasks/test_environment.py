"""What else than inputs, config and code changes a result."""

import torch

from tasks.environment import machine_environment, torch_environment


def test_training_depends_on_device_and_torch() -> None:
    environment = torch_environment({})
    assert environment["torch"] == torch.__version__
    assert set(environment) == {"device", "torch"}
    if not torch.cuda.is_available():
        assert environment["device"] == "cpu"


def test_speed_depends_on_the_processor_too() -> None:
    assert machine_environment({})["processor"]
