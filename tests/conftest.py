"""Fixtures that several folders of tests share."""

from collections.abc import Iterator

import pytest
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.testing.utilities import prefect_test_harness


@pytest.fixture(scope="session")
def prefect_api() -> Iterator[None]:
    """A Prefect API with its own database, for the session (its start takes seconds)."""
    with (
        prefect_test_harness(server_startup_timeout=120),
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),  # a second less a flow
    ):
        yield
