"""Stage 3: shards of rows become one training bin and one held-out bin."""

from collections.abc import Mapping, Sequence
from typing import Any

from shadow_model.data.pack import PackConfig, pack_bins
from shadow_model.receipt import Receipt
from tasks.stage import Work, stage_task


@stage_task("pack", "3 pack train.bin, val.bin", modules=["shadow_model.data.pack"])
def make_bins(
    work: Work, shards: Sequence[Receipt], table: Receipt, config: PackConfig
) -> Mapping[str, Any]:
    """Split the shards, put them in their seeded order and append them."""
    folders = [work.of(receipt) for receipt in shards]
    table_path = work.of(table) / "table.npz"
    return pack_bins(folders, table_path, work.folder, config, work.progress)
