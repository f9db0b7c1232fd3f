"""Receipts and lineage as markdown."""

from pathlib import Path

from shadow_model.receipt import FileRecord, InputRecord, Receipt
from tasks.artifacts import artifact_key, lineage_mermaid, receipt_markdown


def receipt(stage: str, *inputs: str, key: str = "0" * 32) -> Receipt:
    return Receipt(
        stage=stage,
        key=key,
        inputs=tuple(InputRecord(stage=i, key="1" * 32, sha256="2" * 64, bytes=5) for i in inputs),
        outputs=tuple(FileRecord(name=f"part_{n}", sha256="3" * 64, bytes=1000) for n in range(25)),
        counts={
            "tokens": 1234567,
            "loss": 0.123456789,
            "by": {"kind": "a|b"},
            "list": [1, 2],
            "rows": [{"check": "alpha", "ok": True}],
        },
        config={"seed": 0},
    )


def test_keys_hold_what_prefect_allows() -> None:
    assert artifact_key("2 remap shards 00000-00015") == "2-remap-shards-00000-00015"
    assert artifact_key("3 pack train.bin, val.bin") == "3-pack-train-bin-val-bin"


def test_receipt_shows_figures_inputs_and_files() -> None:
    text = receipt_markdown("1 table", receipt("table", "sources"), Path("/store/table"))
    assert "| tokens | 1,234,567 |" in text
    assert "| loss | 0.123457 |" in text
    assert "| by.kind | a\\|b |" in text
    assert "| sources | 111111111111 | 222222222222 | 5 |" in text
    assert "| and 5 more |  | 5,000 |" in text
    assert "| list | [1, 2] |" in text
    assert "### rows\n| check | ok |\n| --- | --- |\n| alpha | true |" in text
    assert '"seed": 0' in text


def test_lineage_joins_batches_of_a_stage() -> None:
    text = lineage_mermaid(
        [
            receipt("raw"),
            receipt("sources", "raw"),
            receipt("remap", "sources", key="a" * 32),
            receipt("remap", "sources", key="b" * 32),
            receipt("pack", "remap", "remap"),
            receipt("report", "raw", "sources", "remap", "pack"),
        ]
    )
    assert text.startswith("```mermaid\ngraph LR\n")
    assert 'remap["remap x 2"]' in text
    assert text.count("remap --> pack") == 1
    assert text.count("sources --> remap") == 1
    assert "pack --> report" in text
    assert "sources --> report" not in text, "the graph shows that way already"
