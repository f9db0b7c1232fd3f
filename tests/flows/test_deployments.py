"""prefect.yaml names flows that exist, with parameters that they take and describe."""

import importlib
import inspect
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect import Flow
from prefect.utilities.callables import parameter_schema

ROOT = Path(__file__).parents[2]
PROJECT = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
DEPLOYMENTS = {
    "proof/full",
    "proof/tiny",
    "control/flat",
    "smoke/nightly",
    "speed/bench",
    "prepare/data",
}


def flow_of(deployment: dict[str, Any]) -> Flow[..., Any]:
    """Import the flow that a deployment runs."""
    path, _, name = deployment["entrypoint"].partition(":")
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    flow = getattr(module, name)
    assert isinstance(flow, Flow)
    return flow


def test_the_deployments_are_those_of_the_readme() -> None:
    names = {f"{flow_of(d).name}/{d['name']}" for d in PROJECT["deployments"]}
    assert names == DEPLOYMENTS


@pytest.mark.parametrize("deployment", PROJECT["deployments"], ids=lambda d: d["name"])
def test_parameters_are_known_and_described(deployment: dict[str, Any]) -> None:
    flow = flow_of(deployment)
    schema = parameter_schema(flow).properties
    assert set(deployment.get("parameters", {})) <= set(schema)
    assert all(field.get("description") for field in schema.values()), schema
    assert set(schema) == set(inspect.signature(flow.fn).parameters)


@pytest.mark.parametrize("deployment", PROJECT["deployments"], ids=lambda d: d["name"])
def test_every_deployment_says_what_it_is(deployment: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert deployment["version"] == project["version"]
    assert deployment["description"].endswith(".")
    assert deployment["tags"]


def test_nightly_has_a_time_zone() -> None:
    schedules = [s for d in PROJECT["deployments"] for s in d.get("schedules", [])]
    assert [(s["cron"], s["timezone"]) for s in schedules] == [("30 2 * * *", "Europe/Berlin")]


def test_the_pull_step_is_ours() -> None:
    ((step, inputs),) = PROJECT["pull"][0].items()
    module, _, name = step.rpartition(".")
    assert set(inputs) == set(
        inspect.signature(getattr(importlib.import_module(module), name)).parameters
    )
