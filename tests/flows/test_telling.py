"""The outcome of a run is told as a table, with the verdict below."""

from typing import Any

import pytest

from flows.telling import tell_report


def arm(start: float, end: float) -> dict[str, Any]:
    return {"start": {"loss": start}, "end": {"loss": end, "standard_error": 0.02}}


def test_losses_costs_and_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    cost = {"tokens": 250_000, "elapsed_s": 75.0, "flops": 2e12, "tokens_per_s": None}
    row = {"kind": "text", "unigram_entropy_nats": 6.4, "proof": arm(6.8, 5.6), "flat": None}
    tell_report(
        {
            "costs": {"proof": {**cost, "money": "0.05 USD"}, "flat": {**cost, "money": None}},
            "held_out": [row],
            "verdict": {"headline": "Neither is ahead."},
        }
    )
    told = capsys.readouterr().out
    for words in ("6.800 -> 5.600 ± 0.020", "250 k", "1 min 15 s", "0.05 USD", "Neither is ahead."):
        assert words in told
    assert "tokens a second" not in told
