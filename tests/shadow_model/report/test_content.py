"""The JSON twin holds every figure of the page as plain numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shadow_model.errors import DataError
from shadow_model.report.config import ReportConfig
from shadow_model.report.content import page_content, read_findings
from shadow_model.report.inputs import ReportInputs


def content(inputs: ReportInputs) -> dict[str, Any]:
    return page_content(read_findings(inputs), inputs, ReportConfig())


def test_content_is_json_and_states_its_version(chain: Any) -> None:
    found = content(chain.inputs())
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["version"] == 1
    assert found["missing"] == {}


def test_held_out_has_start_and_end_of_both_arms(chain: Any) -> None:
    rows = {row["kind"]: row for row in content(chain.inputs())["held_out"]}
    assert list(rows) == ["text", "picture", "sound", "clip", "total"]
    text = rows["text"]
    assert text["proof"]["start"]["loss"] == 9.0
    assert text["proof"]["end"]["loss"] < text["flat"]["end"]["loss"]
    assert text["proof"]["change"] == pytest.approx(text["proof"]["end"]["loss"] - 9.0)
    # 20,000 even draws from 300 rows: the plug-in estimate is about 299 / 40,000 low.
    assert text["unigram_entropy_nats"] == pytest.approx(np.log(300) - 0.0075, abs=3e-3)
    assert rows["total"]["unigram_entropy_nats"] is None


def test_costs_and_growth(chain: Any) -> None:
    found = content(chain.inputs())
    proof = found["costs"]["proof"]
    assert proof["flops"] == pytest.approx(4.8e13)
    assert (proof["parameters"], proof["peak_bytes"]) == (1_870_000, 1_600_000_000)
    assert proof["annealed"]
    (growth,) = found["growth"]
    assert (growth["arm"], growth["before"], growth["after"]) == ("proof", 6.5, 6.53)


def test_stages_lead_back_to_the_sources(chain: Any) -> None:
    stages = {stage["stage"]: stage for stage in content(chain.inputs())["stages"]}
    todo, seen = ["proof"], set()
    while todo:
        name = todo.pop()
        seen.add(name)
        for read in stages[name]["inputs"]:
            assert read["sha256"] == stages[read["stage"]]["sha256"]
            todo.append(read["stage"])
    assert seen == {"proof", "pack", "table", "remap", "sources"}


def test_absent_stages_say_so(chain: Any) -> None:
    found = content(chain.inputs(without=("speed", "sources", "flat", "table")))
    assert set(found["missing"]) == {"speed", "sources", "flat", "table"}
    assert found["speed"] == {}
    assert found["verdict"]["outcome"] == "missing"
    assert all(row["unigram_entropy_nats"] is None for row in found["held_out"])


def test_environments_group_hosts_and_versions(chain: Any) -> None:
    inputs = chain.inputs()
    moved = [r.replace(host="elsewhere") if r.stage == "flat" else r for r in inputs.receipts]
    places = content(ReportInputs.of(chain.store, moved))["environments"]
    assert [place["stages"] for place in places][1:] == [["flat"]]
    assert places[1]["host"] == "elsewhere"


def test_stage_without_its_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"smoke\.json"):
        read_findings(ReportInputs((), smoke=tmp_path))
    with pytest.raises(DataError, match=r"metrics\.jsonl"):
        read_findings(ReportInputs((), proof=tmp_path))


def test_kind_that_the_first_evaluation_lacked_has_no_change(chain: Any, tmp_path: Path) -> None:
    folder = chain.inputs().flat
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    first = next(record for record in records if record["event"] == "evaluate")
    first["kinds"]["clip"] = {"loss": None, "standard_error": None, "count": 0}
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    rows = {row["kind"]: row for row in content(ReportInputs((), flat=tmp_path))["held_out"]}
    assert rows["clip"]["flat"]["start"]["loss"] is None
    assert rows["clip"]["flat"]["change"] is None
    assert rows["clip"]["flat"]["end"]["loss"] > 0
