"""The small run that the tests of training share."""

import pytest
import torch

from shadow_model.train.config import ArmConfig
from tests.small_run import Data, small_arm, write_data


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def arm() -> ArmConfig:
    return small_arm()
