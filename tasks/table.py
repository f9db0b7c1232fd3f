"""Stage 1: the frozen table, one row of 512 bits a token."""

from collections.abc import Mapping
from typing import Any

from shadow_model.data.table_stage import build_table
from shadow_model.receipt import Receipt
from shadow_model.table.config import TableConfig
from tasks.stage import Work, stage_task


@stage_task("table", "1 table", modules=["shadow_model.data.table_stage"])
def make_table(
    work: Work,
    sources: Receipt,
    config: TableConfig,
    val_every: int,
    vectors: Receipt | None = None,  # noqa: ARG001 (digests of the files that the config names)
) -> Mapping[str, Any]:
    """Give every piece, codeword, mark and control a row of bits and a bias."""
    return build_table(work.of(sources), work.folder, config, val_every, work.progress)
