"""`shadow setup`: work pools, deployments and automations on a running server; run it again freely.

`python -m flows.installation '{"flow": "setup", "parameters": {...}}'`, as `flows.launch` starts
it, in the caller's own Prefect environment.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

from prefect.automations import AutomationCore, EventTrigger, Posture
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import StateType
from prefect.events.actions import CallWebhook, ChangeFlowRunState
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL
from prefect.variables import Variable

from flows.failures import VARIABLE
from flows.telling import run_command, tell_table
from shadow_model.errors import ConfigError

ROOT = Path(__file__).parents[1]
FLOWS = ("proof", "control", "prepare", "smoke", "speed")
POOLS: dict[str, int | None] = {"cpu": None, "gpu": 1}
"""Work pool -> runs at once; None: no limit."""
CRASHED = "shadow: runs whose process died"
FAILED = "shadow: failed runs"
_BLOCK = "shadow-failures"
_ENDED = ("Completed", "Failed", "Cancelled", "Crashed", "Paused")
_BODY = """{
  "flow": "{{ flow.name }}", "run": "{{ flow_run.name }}", "id": "{{ flow_run.id }}",
  "state": "{{ flow_run.state.name }}"
}"""


def setup(crashed_after_s: int, failures: str | None = None) -> None:
    """Install everything; what is there already is brought up to date.

    Args:
        crashed_after_s: A run that is not heard of for so long counts as crashed.
        failures: File or URL that failed runs are told to; None leaves that as it is.
    """
    with get_client(sync_client=True) as client:
        _check_server(client)
        rows = [(f"work pool {name}", _pool(client, name)) for name in POOLS]
        rows.append((f"automation {CRASHED}", _install(client, zombies(crashed_after_s))))
        rows += _failures(client, failures) if failures else []
        _deploy()
        rows += sorted(_deployed(client))
    tell_table(("installed", ""), rows)


def zombies(after_s: int) -> AutomationCore:
    """Return the automation that turns a run without a heartbeat into a crashed one.

    Nobody else tells of a process that was killed together with its worker.
    """
    return AutomationCore(
        name=CRASHED,
        description=f"A run that is not heard of for {after_s} s is crashed.",
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.heartbeat", *(f"prefect.flow-run.{end}" for end in _ENDED)},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=after_s),
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED, message=f"its process was not heard of for {after_s} s"
            )
        ],
    )


def _check_server(client: SyncPrefectClient) -> None:
    url = PREFECT_API_URL.value()
    fix = "Start one with `shadow server`, and export PREFECT_API_URL as it says."
    if not url:
        raise ConfigError("PREFECT_API_URL", "name a running Prefect server", "nothing", fix)
    if (fault := client.api_healthcheck()) is not None:
        raise ConfigError(
            "PREFECT_API_URL", "name a running Prefect server", f"{url}: {fault}", fix
        )


def _pool(client: SyncPrefectClient, name: str) -> str:
    limit = POOLS[name]
    shown = "any number of runs at once" if limit is None else f"{limit} run at once"
    try:
        client.read_work_pool(name)
    except ObjectNotFound:
        pool = WorkPoolCreate(name=name, type="process", concurrency_limit=limit)
        client.create_work_pool(pool)
        return f"new, {shown}"
    client.update_work_pool(name, WorkPoolUpdate(concurrency_limit=limit))
    return shown


def _install(client: SyncPrefectClient, automation: AutomationCore) -> str:
    if before := client.read_automations_by_name(automation.name):
        client.update_automation(before[0].id, automation)
        return "brought up to date"
    client.create_automation(automation)
    return "new"


def _deploy() -> None:
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        fix = "Mend what it says, and set up again."
        raise ConfigError(ROOT / "prefect.yaml", "be deployed", done.stdout + done.stderr, fix)


def _deployed(client: SyncPrefectClient) -> Iterator[tuple[str, str]]:
    names = {flow.id: flow.name for flow in client.read_flows()}
    for deployment in client.read_deployments():
        if (flow := names.get(deployment.flow_id)) in FLOWS:
            yield f"deployment {flow}/{deployment.name}", f"pool {deployment.work_pool_name}"


def _failures(client: SyncPrefectClient, where: str) -> list[tuple[str, str]]:
    """Tell failed runs to a URL, by the server, or to a file, by the run itself."""
    if not where.startswith(("http://", "https://")):
        path = Path(where).expanduser().resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        Variable.set(VARIABLE, str(path), overwrite=True)
        return [("failed runs", f"a line each in {path}")]
    block = Webhook(url=where).save(_BLOCK, overwrite=True)
    automation = AutomationCore(
        name=FAILED,
        description="Tells failed and crashed runs to a URL.",
        trigger=EventTrigger(
            expect={"prefect.flow-run.Failed", "prefect.flow-run.Crashed"},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related={
                "prefect.resource.role": "flow",
                "prefect.resource.name": list(FLOWS),
            },
            posture=Posture.Reactive,
            threshold=1,
            within=timedelta(0),
        ),
        actions=[CallWebhook(block_document_id=block, payload=_BODY)],
    )
    return [(f"automation {FAILED}", _install(client, automation))]


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    return run_command({"setup": setup}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
