"""Every trained run beside the others: arms, seeds, and their spread.

A run is told by its arm's tag and its seed. An arm other than the proof is compared with the proof
of the same seed, at equal tokens, FLOPs and time.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shadow_model.report.multiplier import multipliers
from shadow_model.report.pairing import TOTAL, WINDOWS, Windows, paired_errors, read_windows
from shadow_model.report.runs import METRICS, Run, read_run
from shadow_model.report.verdict import AXES, Comparison, compare
from shadow_model.table.layout import KINDS

PROOF, FLAT, MATCHED = "proof", "flat", "matched"


@dataclass(frozen=True)
class Trained:
    """One run, and its last evaluation window by window."""

    run: Run
    windows: Windows | None

    @classmethod
    def read(cls, stage: str, folder: Path) -> "Trained":
        """Read the folder of a training stage; DataError where it is none."""
        return cls(read_run(stage, folder / METRICS), read_windows(folder / WINDOWS))


class Arms:
    """All runs of a report.

    Args:
        trained: In order; the first of a stage is the one that stands for it.
    """

    def __init__(self, trained: Sequence[Trained]) -> None:
        self.trained = tuple(trained)

    def first(self, stage: str) -> Trained | None:
        """Return the run that stands for a stage."""
        return next((one for one in self.trained if one.run.name == stage), None)

    def table(self) -> list[dict[str, Any]]:
        """Return a row for each run, plain values."""
        return [self._row(one) for one in self.trained]

    def spread(self) -> list[dict[str, Any]]:
        """Return a row for each arm of several seeds: its last losses' mean and deviation."""
        rows = []
        for tag, runs in self._by_tag().items():
            if len(runs) > 1:
                losses = [_last_losses(one.run) for one in runs]
                kinds = {k: _moments([found.get(k) for found in losses]) for k in (TOTAL, *KINDS)}
                rows.append({"tag": tag, "seeds": len(runs), "kinds": kinds})
        return rows

    def gap_over_seeds(self, control: str) -> dict[str, Any] | None:
        """Return mean, deviation and standard error over seeds of control minus proof.

        Args:
            control: Stage of the control.

        Returns:
            None unless at least two seeds trained both.
        """
        gaps = []
        for one in self.trained:
            proof = self._proof_of(one)
            if one.run.name == control and proof is not None:
                gaps.append(_last_losses(one.run)[TOTAL] - _last_losses(proof.run)[TOTAL])
        if len(gaps) < 2:
            return None
        found = _moments(gaps)
        return {**found, "standard_error": found["deviation"] / math.sqrt(len(gaps))}

    def _by_tag(self) -> Mapping[str, list[Trained]]:
        found: dict[str, list[Trained]] = {}
        for one in self.trained:
            found.setdefault(one.run.tag, []).append(one)
        return found

    def _proof_of(self, one: Trained) -> Trained | None:
        pairs = (t for t in self.trained if t.run.name == PROOF and t.run.seed == one.run.seed)
        return None if one.run.name == PROOF else next(pairs, None)

    def _row(self, one: Trained) -> dict[str, Any]:
        run, last, proof = one.run, one.run.evaluations[-1], self._proof_of(one)
        row: dict[str, Any] = {
            "tag": run.tag,
            "stage": run.name,
            "seed": run.seed,
            "tokens": last.tokens,
            "flops": last.flops,
            "train_s": run.final.get("train_s"),
            "loss": last.loss,
            "standard_error": last.standard_error,
            "bits": last.loss / math.log(2),
            "text_bits_per_byte": last.text_bits_per_byte,
            "text_bits_per_byte_error": last.text_bits_per_byte_error,
            "annealed": run.annealed,
            "against": {},
            "multipliers": [],
        }
        if proof is None:
            return row
        paired = paired_errors(proof.windows, one.windows)
        compared = {axis: compare(proof.run, run, axis, paired) for axis in AXES}
        row["against"] = {a: _gap(c) for a, c in compared.items() if c is not None}
        places = multipliers(proof.run, run)
        row["multipliers"] = [{**p._asdict(), "multiplier": p.multiplier} for p in places]
        return row


def _gap(comparison: Comparison) -> dict[str, Any]:
    total = comparison.differences[TOTAL]
    return {
        **asdict(total),
        "at": comparison.at,
        "outcome": total.outcome,
        "paired": comparison.paired,
        "mid_schedule": comparison.mid_schedule,
    }


def _last_losses(run: Run) -> dict[str, float]:
    last = run.evaluations[-1]
    kinds = {name: kind.loss for name, kind in last.kinds.items()}
    return {TOTAL: last.loss, **{n: loss for n, loss in kinds.items() if loss is not None}}


def _moments(values: Sequence[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    return {
        "mean": statistics.fmean(known) if known else None,
        "deviation": statistics.stdev(known) if len(known) > 1 else 0.0,
        "low": min(known, default=None),
        "high": max(known, default=None),
        "seeds": len(known),
    }
