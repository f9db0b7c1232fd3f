"""Fixtures that several folders of tests share, and one thread for tiny operators."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.testing.utilities import prefect_test_harness

# before torch is imported: threads only hinder small shapes, and 30-fold on a busy machine
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what waits most, so that other files run beside it."""
    items.sort(key=lambda item: item.get_closest_marker("server") is None)


@pytest.fixture(scope="session")
def prefect_api() -> Iterator[None]:
    """A Prefect API with its own database, for the session (its start takes seconds)."""
    with (
        prefect_test_harness(server_startup_timeout=120),
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),  # a second less a flow
    ):
        yield


BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")  # its event loop would be in the way of other modules
def browser() -> Iterator[Browser]:
    """A real browser, where the machine has one: Debian's chromium, or what CHROMIUM names."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on the path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()
