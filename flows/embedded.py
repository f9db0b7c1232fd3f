"""The embedded default: a flow with a Prefect API of its own that ends with it.

`python -m flows.embedded '{"flow": "proof", "parameters": {...}}'`, as `flows.launch` starts it.
The API starts while torch is imported, and stops only once all task runs are recorded.
Exit codes: 0 done, 1 failed, 2 bad input or config, 130 and 143 stopped by SIGINT and SIGTERM.
"""

import importlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from prefect.exceptions import TerminationSignal
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from flows.api import own_api, recorded_task_runs
from flows.launch import QUIET
from flows.telling import BAD_INPUT, tell_error, tell_report
from flows.terminal import shown_progress
from shadow_model.errors import ShadowError
from shadow_model.receipt import Receipt
from shadow_model.report.inputs import read_json
from shadow_model.store import Store

FLOWS = {
    "proof": "flows.proof",
    "control": "flows.control",
    "prepare": "flows.prepare",
    "smoke": "flows.checks",
    "speed": "flows.checks",
}
FAILED = 1


def main(arguments: list[str]) -> int:
    """Run a flow.

    Args:
        arguments: One JSON object with `flow` and `parameters`.

    Returns:
        The exit code.
    """
    job, quiet = json.loads(arguments[0]), QUIET in os.environ
    signal.signal(signal.SIGTERM, _stop)  # after its own clean-up, Prefect hands the signal on
    try:
        with shown_progress(quiet), temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            outcome = run_embedded(job["flow"], job["parameters"])
    except TerminationSignal as stop:
        return 128 + stop.signal
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    if isinstance(outcome, ShadowError):
        tell_error(outcome)
        return BAD_INPUT
    if not isinstance(outcome, Receipt):
        return FAILED  # Prefect has logged the traceback
    _tell_outcome(Path(job["parameters"]["store"]), outcome, quiet)
    return 0


def run_embedded(flow: str, parameters: Mapping[str, Any]) -> Receipt | BaseException:
    """Run a flow by name with an API of its own; all its task runs are recorded afterwards.

    Returns:
        What the flow returns, or the exception that it failed with.
    """
    with own_api() as wait_until_up:
        function = getattr(importlib.import_module(FLOWS[flow]), flow)
        wait_until_up()
        with recorded_task_runs():
            state = function(**parameters, return_state=True)
            outcome = state.result(raise_on_failure=False)
    assert isinstance(outcome, Receipt | BaseException)
    return outcome


def _stop(number: int, _frame: FrameType | None) -> None:
    raise TerminationSignal(signal=number)


def _tell_outcome(store: Path, receipt: Receipt, quiet: bool) -> None:
    folder = Store(store).folder(receipt)
    page = folder / "report.html"
    if (twin := folder / "report.json").exists() and not quiet:
        tell_report(read_json(twin))
    sys.stdout.write(f"{page if page.exists() else folder}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
