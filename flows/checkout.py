"""The pull step of our deployments: run in the checkout that the worker's environment names.

Prefect's own step takes an unset variable as a folder of that name, and its error does not reach
the run's log.
"""

import os
from pathlib import Path

from prefect.logging import get_logger

from shadow_model.errors import ConfigError

RUN_ID = "PREFECT__FLOW_RUN_ID"


def enter_checkout(variable: str) -> dict[str, str]:
    """Make the checkout the working folder.

    Args:
        variable: The environment variable that names it.

    Returns:
        `directory`, as Prefect's own step does.

    Raises:
        ConfigError: It is not set, or names another folder. The run's log says so, too.
    """
    root = os.environ.get(variable, "")
    if not root or not (Path(root) / "prefect.yaml").is_file():
        must, fix = "name the checkout of this project", "Export it where the worker is started."
        error = ConfigError(variable, must, repr(root), fix)
        run = {"flow_run_id": os.environ.get(RUN_ID)}
        get_logger("flow_runs").error("%s", error, extra=run)
        raise error
    os.chdir(root)
    return {"directory": root}
