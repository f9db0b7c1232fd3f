"""Start a flow in a process of its own, sealed from the caller's Prefect.

Prefect reads settings from environment variables, a profile, and files in the current folder, once,
when it is imported. So the flow gets a new process with none of them: no PREFECT_ variable but
ours, a home of its own in the store, and that home as current folder.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn

HOME = "prefect"
QUIET = "SHADOW_QUIET"
"""Set where nothing but errors and the outcome are to be told."""
SETTINGS = {
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "true",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "shadow_model",
}
DEFAULTS = {"OMP_WAIT_POLICY": "passive"}
"""Unless the caller says otherwise. A thread that waits for others by spinning takes their core
where another program runs: training was 5 times slower beside one, and not faster alone."""
Told = Literal["quiet", "normal", "verbose"]
LEVELS: Mapping[Told, Mapping[str, str]] = {
    "quiet": {"PREFECT_LOGGING_LEVEL": "ERROR", "PREFECT_LOGGING_ROOT_LEVEL": "ERROR", QUIET: "1"},
    "normal": {},
    "verbose": {"PREFECT_LOGGING_LEVEL": "DEBUG"},
}
_PATHS = frozenset({"data", "file", "picture"})
_ROOT = Path(__file__).parents[1]


def launch(
    flow: str,
    parameters: Mapping[str, Any],
    store: Path,
    module: str = "flows.embedded",
    told: Told = "normal",
) -> NoReturn:
    """Become a process that runs a flow in the embedded default; see `flows.embedded`.

    Args:
        flow: Its name, as "proof"; another module has its own names.
        parameters: Its parameters, without the store; paths may be relative.
        store: Folder of finished stages.
        module: What runs it.
        told: How much it tells on the way.
    """
    home = store.resolve() / HOME
    home.mkdir(parents=True, exist_ok=True)
    job = {"flow": flow, "parameters": {**_absolute(parameters), "store": str(store.resolve())}}
    environment = {**sealed_environment(os.environ, home), **LEVELS[told]}
    os.chdir(home)
    command = [sys.executable, "-m", module, json.dumps(job)]
    os.execve(sys.executable, command, environment)


def launch_in_callers_prefect(command: str, module: str, parameters: Mapping[str, Any]) -> NoReturn:
    """Become a process that runs a command against the server of the caller's environment."""
    job = json.dumps({"flow": command, "parameters": dict(parameters)})
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    os.execve(sys.executable, [sys.executable, "-m", module, job], environment)


def sealed_environment(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return `environment` without the caller's Prefect, and with our own in `home`."""
    kept = {k: v for k, v in environment.items() if not k.upper().startswith("PREFECT_")}
    paths = [str(_ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    own = {**SETTINGS, "PREFECT_HOME": str(home), "PYTHONPATH": os.pathsep.join(paths)}
    return {**DEFAULTS, **kept, **own}


def _absolute(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is not given, and resolve paths against the caller's folder."""
    given = {name: value for name, value in parameters.items() if value is not None}
    paths = {name for name, value in given.items() if name in _PATHS or _is_recipe_file(value)}
    return {n: str(Path(v).resolve()) if n in paths else v for n, v in given.items()}


def _is_recipe_file(value: Any) -> bool:
    return isinstance(value, str) and value.endswith(".toml")
