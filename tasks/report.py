"""Stage 8: one page that answers what the run showed, and where it all came from."""

from collections.abc import Mapping, Sequence
from typing import Any

from prefect import get_run_logger
from prefect.artifacts import create_link_artifact, create_markdown_artifact

from shadow_model.receipt import Receipt
from shadow_model.report.build import build_report
from shadow_model.report.config import ReportConfig
from shadow_model.report.inputs import ReportInputs
from tasks.artifacts import lineage_mermaid, markdown_table
from tasks.chain import Chain
from tasks.stage import Work, stage_task

PAGE = "report.html"


@stage_task(
    "report",
    "8 report",
    modules=["shadow_model.report.build"],
    undrawn=["receipts"],  # of every stage: their edges would hide the chain
)
def make_report(work: Work, receipts: Sequence[Receipt], config: ReportConfig) -> Mapping[str, Any]:
    """Draw the curves, tables, pictures and lineage of a run as one HTML page."""
    inputs = ReportInputs.of(work.store, receipts)
    return build_report(work.folder, inputs, config, work.progress)


def publish_report(chain: Chain, report: Receipt) -> None:
    """Publish the page's place and the lineage on the flow run.

    Called by the flow itself: artifacts of a task do not show on its parent's page as its own.
    """
    page = chain.store.folder(report) / PAGE
    create_link_artifact(key="report-page", link=page.as_uri(), link_text=str(page))
    lines = [
        "# Report",
        str(report.counts["headline"]),
        f"The page: `{page}`",
        "## Held-out losses, nats a token",
        "\n".join(_losses(chain.receipts)),
        "## Lineage",
        lineage_mermaid(chain.receipts),
    ]
    create_markdown_artifact(
        key="report", markdown="\n\n".join(lines), description="The run's outcome and lineage"
    )
    get_run_logger().info("report: %s", page)


def _losses(receipts: Sequence[Receipt]) -> list[str]:
    arms = {_arm(r): r.counts["held_out"] for r in receipts if "held_out" in r.counts}
    names = list(dict.fromkeys(name for losses in arms.values() for name in losses))
    rows = ([arm, *(_shown(losses[name]) for name in names)] for arm, losses in arms.items())
    return markdown_table(["arm", *names], rows)


def _arm(receipt: Receipt) -> str:
    arm = receipt.config["arm"]
    return f"{arm['tag']}, seed {arm['train']['seed']}"


def _shown(loss: float | None) -> str:
    return "-" if loss is None else f"{loss:.4f}"
