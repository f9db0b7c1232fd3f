"""Stage 0: raw text, pictures, sounds and clips become shards of ids, and codecs are fitted."""

from collections.abc import Mapping
from typing import Any

from shadow_model.data.sources import SourcesConfig, build_sources
from shadow_model.receipt import Receipt
from tasks.stage import Work, stage_task


@stage_task("sources", "0 sources", modules=["shadow_model.data.sources"])
def make_sources(
    work: Work,
    raw: Receipt,  # noqa: ARG001 (the digests of the raw files: they decide the key)
    config: SourcesConfig,
) -> Mapping[str, Any]:
    """Fit pieces and codecs on the training share of the raw data, and write its ids."""
    return build_sources(work.folder, config, work.progress)
