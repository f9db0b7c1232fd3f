"""Fixtures that several folders of tests share, and one thread for tiny operators."""

import os
from collections.abc import Iterator

import pytest
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.testing.utilities import prefect_test_harness

# before torch is imported: threads only hinder small shapes, and 30-fold on a busy machine
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def prefect_api() -> Iterator[None]:
    """A Prefect API with its own database, for the session (its start takes seconds)."""
    with (
        prefect_test_harness(server_startup_timeout=120),
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),  # a second less a flow
    ):
        yield
