"""One command sets a server up, and does so again without harm."""

import pytest

from flows.installation import CRASHED, FAILED
from tests.server.conftest import SHADOW, Server

pytestmark = pytest.mark.server


def test_pools_deployments_and_automations_are_there(server: Server) -> None:
    with server.client() as client:
        pools = {pool.name: pool for pool in client.read_work_pools()}
        deployments = client.read_deployments()
        (crashed,) = client.read_automations_by_name(CRASHED)
    assert {name: pool.type for name, pool in pools.items()} == {"cpu": "process", "gpu": "process"}
    assert (pools["cpu"].concurrency_limit, pools["gpu"].concurrency_limit) == (None, 1)
    assert {d.name for d in deployments} == {"full", "tiny", "flat", "nightly", "bench", "data"}
    for deployment in deployments:
        assert deployment.description
        assert deployment.version
        assert deployment.tags
        assert deployment.job_variables["stream_output"] is False
        assert deployment.job_variables["env"]["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == "30"
        fields = deployment.parameter_openapi_schema["properties"]
        assert all(field["description"] for field in fields.values())
    assert crashed.enabled


def test_setting_up_again_changes_what_was_asked_and_doubles_nothing(server: Server) -> None:
    url = "http://127.0.0.1:9/failed"
    told = server.run(str(SHADOW), "setup", "--crashed-after", "35", "--failures", url).stdout
    assert "brought up to date" in told
    with server.client() as client:
        assert len(client.read_automations_by_name(CRASHED)) == 1
        (failed,) = client.read_automations_by_name(FAILED)
        assert len(client.read_work_pools()) == 2
        assert len(client.read_deployments()) == 6
        client.delete_automation(failed.id)


def test_leases_are_kept_on_disk(server: Server) -> None:
    with server.client() as client:
        settings = client.request("GET", "/admin/settings").json()
    kept = settings["server"]["concurrency"]["lease_storage"]
    assert kept == "prefect.server.concurrency.lease_storage.filesystem"


def test_without_a_server_it_says_what_to_do(server: Server) -> None:
    before = server.environment["PREFECT_API_URL"]
    try:
        server.environment["PREFECT_API_URL"] = "http://127.0.0.1:9/api"
        done = server.run(str(SHADOW), "setup", check=False)
    finally:
        server.environment["PREFECT_API_URL"] = before
    assert done.returncode == 2
    assert "must name a running Prefect server" in done.stderr
    assert "shadow server" in done.stderr
