"""Failed and crashed runs, told where the user said: a line of JSON in a file.

`shadow setup --failures FILE` keeps the file's path in a Prefect variable. A run whose process was
killed cannot tell; where failures go to a URL instead, the server itself sends them.
"""

import json
from pathlib import Path
from typing import Any

from prefect import Flow
from prefect.client.schemas.objects import FlowRun, State
from prefect.variables import Variable

from shadow_model.redaction import redacted

VARIABLE = "shadow_failures"


def write_failure(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Append what became of a run to the file that the variable names, if there is one."""
    path = Variable.get(VARIABLE)
    if not isinstance(path, str):
        return
    told = {
        "at": state.timestamp.isoformat(),
        "flow": flow.name,
        "run": flow_run.name,
        "id": str(flow_run.id),
        "state": state.name,
        "message": redacted(state.message or ""),
    }
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(told) + "\n")
