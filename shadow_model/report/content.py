"""All that the page says, as plain values: the JSON twin, from which the page is rendered."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shadow_model.nn.transitions import TRANSITIONS
from shadow_model.receipt import Receipt
from shadow_model.report.arms import FLAT, MATCHED, PROOF, Arms, Trained
from shadow_model.report.config import ReportConfig
from shadow_model.report.entropy import held_out_entropy
from shadow_model.report.inputs import ReportInputs, read_json, read_samples
from shadow_model.report.pairing import TOTAL, paired_errors
from shadow_model.report.runs import Evaluation, KindLoss, Run
from shadow_model.report.verdict import AXES, Comparison, Verdict, judge
from shadow_model.table.layout import KINDS
from shadow_model.table.store import Table

VERSION = 1


@dataclass(frozen=True)
class Findings:
    """What was read from the stages.

    Attributes:
        runs: The first seeds of the looped core and its control, where they were trained.
        arms: All trained runs.
        entropy_nats: Kind -> entropy of the held-out unigrams; empty without bins and table.
        missing: Section -> why the page goes without it.
    """

    runs: tuple[Run, ...]
    arms: Arms
    entropy_nats: dict[str, float]
    packed: dict[str, Any]
    smoke: dict[str, Any]
    speed: dict[str, Any]
    export: dict[str, Any]
    samples: list[dict[str, Any]]
    missing: dict[str, str]

    def run(self, name: str) -> Run | None:
        """Return an arm by name, or None if it was not trained."""
        return next((run for run in self.runs if run.name == name), None)


def read_findings(inputs: ReportInputs) -> Findings:
    """Read every stage that is there.

    Raises:
        DataError: A stage that is there cannot be read as what it should be.
        LayoutError: So for the table.
    """
    named = {PROOF: inputs.proof, FLAT: inputs.flat}
    folders = inputs.trained or [(name, path) for name, path in named.items() if path]
    arms = Arms([Trained.read(stage, folder) for stage, folder in folders])
    firsts = [arms.first(name) for name in named]
    return Findings(
        runs=tuple(one.run for one in firsts if one),
        arms=arms,
        entropy_nats=_entropy(inputs),
        packed=read_json(inputs.bins / "packed.json") if inputs.bins else {},
        smoke=read_json(inputs.smoke / "smoke.json") if inputs.smoke else {},
        speed=read_json(inputs.speed / "speed.json") if inputs.speed else {},
        export=read_json(inputs.export / "export.json") if inputs.export else {},
        samples=read_samples(inputs.export) if inputs.export else [],
        missing=_missing(inputs),
    )


def _entropy(inputs: ReportInputs) -> dict[str, float]:
    if not (inputs.bins and inputs.table):
        return {}
    layout = Table.load(inputs.table / "table.npz").layout
    return held_out_entropy(inputs.bins / "val.bin", layout)


def _missing(inputs: ReportInputs) -> dict[str, str]:
    reasons = {
        "sources": "The sources stage is not among the inputs: no picture of the data.",
        "table": "The table stage is not among the inputs: its figures are not shown.",
        "bins": "The pack stage is not among the inputs: no token counts, no unigram entropy.",
        "smoke": "The smoke check was not run for this page.",
        "export": "The looped model was not exported for this page: no size, no samples.",
        "speed": "The speed measurement was not run for this page.",
        "proof": "The looped core was not trained for this page.",
        "flat": "The flat control was not trained for this page.",
    }
    return {name: text for name, text in reasons.items() if getattr(inputs, name) is None}


def page_content(findings: Findings, inputs: ReportInputs, config: ReportConfig) -> dict[str, Any]:
    """Gather all figures of the page as JSON-able values."""
    arms = findings.arms
    proof, control = arms.first(PROOF), arms.first(MATCHED) or arms.first(FLAT)
    verdict = _judge(arms, proof, control, config.small_run_tokens)
    return {
        "version": VERSION,
        "title": config.title,
        "verdict": {**_verdict(verdict), "control": control.run.tag if control else None},
        "held_out": _held_out(findings),
        "transitions": _transitions(findings, verdict),
        "arms": arms.table(),
        "spread": arms.spread(),
        "growth": [step for run in findings.runs for step in _growth(run)],
        "costs": {run.name: cost_of(run, config) for run in findings.runs},
        "runs": {run.name: _run(run) for run in findings.runs},
        "data": {k: v for k, v in findings.packed.items() if k not in {"version", "table"}},
        "table": inputs.counts("table"),
        "sources": inputs.counts("sources"),
        "smoke": findings.smoke,
        "speed": findings.speed,
        "export": findings.export,
        "samples": findings.samples,
        "stages": [_stage(receipt) for receipt in inputs.receipts],
        "environments": _environments(inputs.receipts),
        "missing": findings.missing,
    }


def _judge(
    arms: Arms, proof: Trained | None, control: Trained | None, small_run_tokens: int
) -> Verdict:
    """Judge by a control that was trained for as many FLOPs, where there is one."""
    matched = control is not None and control.run.name == MATCHED
    return judge(
        proof.run if proof else None,
        control.run if control else None,
        small_run_tokens,
        paired_errors(proof.windows, control.windows) if proof and control else {},
        axis="flops" if matched else "tokens",
        over_seeds=arms.gap_over_seeds(control.run.name) if control else None,
    )


def _transitions(findings: Findings, verdict: Verdict) -> list[dict[str, Any]]:
    """Return the last losses by transition, and the difference where the verdict was given."""
    chosen = next((c for c in verdict.comparisons if c.axis == verdict.axis), None)
    rows = []
    for name in TRANSITIONS:
        found = {run.name: run.evaluations[-1].transitions.get(name) for run in findings.runs}
        losses = {arm: loss.model_dump() if loss else None for arm, loss in found.items()}
        if any(loss and loss.count for loss in found.values()):
            gap = chosen.differences.get(name) if chosen else None
            shown = {**asdict(gap), "outcome": gap.outcome} if gap else None
            rows.append({"transition": name, **losses, "flat_minus_proof": shown})
    return rows


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "outcome": verdict.outcome,
        "axis": verdict.axis,
        "headline": verdict.headline,
        "by_kind": verdict.by_kind,
        "caveats": list(verdict.caveats),
        "comparisons": [_comparison(c) for c in verdict.comparisons],
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    arms = {"proof": comparison.proof, "flat": comparison.flat}
    readings = {
        name: {
            "losses": {key: value.loss for key, value in reading.losses.items()},
            "annealed": reading.annealed,
            "interpolated": reading.interpolated,
            "windows": reading.windows,
        }
        for name, reading in arms.items()
    }
    differences = {
        name: {**asdict(d), "outcome": d.outcome} for name, d in comparison.differences.items()
    }
    return {
        "axis": comparison.axis,
        "label": AXES[comparison.axis],
        "at": comparison.at,
        "paired": comparison.paired,
        **readings,
        "flat_minus_proof": differences,
    }


def _held_out(findings: Findings) -> list[dict[str, Any]]:
    rows = []
    for kind in (*KINDS, TOTAL):
        arms = {run.name: held_out_ends(run, kind) for run in findings.runs}
        if any(arms.values()):
            entropy = findings.entropy_nats.get(kind)
            rows.append({"kind": kind, "unigram_entropy_nats": entropy, **arms})
    return rows


def held_out_ends(run: Run, kind: str) -> dict[str, Any] | None:
    """Return the first and last held-out loss of a kind; None where it has none."""
    first, last = (_kind_loss(run.evaluations[place], kind) for place in (0, -1))
    if last.loss is None:
        return None
    change = None if first.loss is None else last.loss - first.loss
    return {"start": first.model_dump(), "end": last.model_dump(), "change": change}


def _kind_loss(evaluation: Evaluation, kind: str) -> KindLoss:
    if kind == TOTAL:
        return KindLoss(loss=evaluation.loss, standard_error=evaluation.standard_error)
    return evaluation.kinds.get(kind, KindLoss())


def _growth(run: Run) -> Iterator[dict[str, Any]]:
    """Yield what each growth of the loops did to the held-out loss, before another update."""
    found = {(e.step, e.loops): e.loss for e in run.around_growth}
    for growth in run.growths:
        before = found.get((growth.step, growth.from_loops))
        after = found.get((growth.step, growth.loops))
        if before is not None and after is not None:
            yield {"arm": run.name, **growth.model_dump(), "before": before, "after": after}


def cost_of(run: Run, config: ReportConfig) -> dict[str, Any]:
    """Return what a run cost, so far or in all."""
    last = run.evaluations[-1]
    known: Mapping[str, Any] = {**run.start, **last.model_dump(), **run.final}
    named = ("parameters", "step", "tokens", "elapsed_s", "train_s", "tokens_per_s", "flops")
    told = ("peak_bytes", "device", "dtype", "threads", "status")
    return {
        **{name: known.get(name) for name in (*named, *told)},
        "annealed": run.annealed,
        "ended": bool(run.final),
        "money": _money(known["elapsed_s"], config),
    }


def _money(seconds: float, config: ReportConfig) -> str | None:
    if config.price_per_hour is None:
        return None
    return f"{seconds / 3600 * config.price_per_hour:,.2f} {config.currency}"


def _run(run: Run) -> dict[str, Any]:
    records: Mapping[str, Sequence[Any]] = {
        "intervals": run.intervals,
        "evaluations": run.evaluations,
        "growths": run.growths,
    }
    lists = {name: [record.model_dump() for record in found] for name, found in records.items()}
    return {"start": run.start, "final": run.final, **lists}


def _stage(receipt: Receipt) -> dict[str, Any]:
    record = receipt.as_input()
    return {
        "stage": receipt.stage,
        "key": receipt.key,
        "sha256": record.sha256,
        "bytes": record.bytes,
        "files": len(receipt.outputs),
        "inputs": [{"stage": i.stage, "key": i.key, "sha256": i.sha256} for i in receipt.inputs],
        "config": {} if receipt.stage == "raw" else receipt.config,
        "started": receipt.started,
        "seconds": receipt.seconds,
        "host": receipt.host,
        "versions": receipt.versions,
    }


def _environments(receipts: Sequence[Receipt]) -> list[dict[str, Any]]:
    """Group stages by the host and the versions that they ran with."""
    found: list[dict[str, Any]] = []
    for receipt in receipts:
        place = {"host": receipt.host, "versions": receipt.versions}
        known = next((f for f in found if place.items() <= f.items()), None)
        if known is None:
            known = {**place, "stages": []}
            found.append(known)
        if receipt.stage not in known["stages"]:
            known["stages"].append(receipt.stage)
    return found
