"""A page to watch one training by. It loads itself anew until the run has ended."""

from pathlib import Path

from shadow_model.report.compare import page_of_runs
from shadow_model.report.config import ReportConfig
from shadow_model.report.content import cost_of, held_out_ends
from shadow_model.report.pairing import TOTAL
from shadow_model.report.runs import Run, read_run
from shadow_model.store import write_whole
from shadow_model.table.layout import KINDS

REFRESH_S = 30


def write_live(folder: Path, stage: str, page: Path) -> None:
    """Write the page of a run that is under way, or has ended.

    Args:
        folder: Holds the run's metrics.jsonl.
        stage: What trains it.
        page: Where to write; its folder is made if absent.

    Raises:
        DataError: The metrics cannot be read, or hold no held-out evaluation yet.
    """
    run = read_run(stage, folder / "metrics.jsonl")
    page.parent.mkdir(parents=True, exist_ok=True)
    write_whole(page, render_live(run).encode())


def render_live(run: Run) -> str:
    """Return the page."""
    step, num_steps = run.evaluations[-1].step, int(run.start.get("num_steps", 0))
    label = f"{run.tag}, seed {run.seed}"
    state = "ended" if run.final else f"as of update {step:,} of {num_steps:,}"
    rows = [(kind, held_out_ends(run, kind)) for kind in (*KINDS, TOTAL)]
    content = {
        "runs": [{"label": label, "headline": state}],
        "held_out": [{"kind": kind, "losses": {label: row["end"]}} for kind, row in rows if row],
        "costs": [{"run": label, "arm": run.name, **cost_of(run, ReportConfig())}],
        "differences": [],
    }
    refresh_s = None if run.final else REFRESH_S
    return page_of_runs(content, [(label, run)], f"Training {label}", refresh_s)
