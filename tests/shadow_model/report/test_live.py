"""The page of a training under way loads itself anew; that of an ended one does not."""

from pathlib import Path
from typing import Any

import pytest

from shadow_model.errors import DataError
from shadow_model.report.live import write_live
from tests.shadow_model.report.conftest import write_metrics


@pytest.mark.parametrize("ended", [False, True])
def test_it_shows_the_curves_so_far(metrics: Any, ended: bool, tmp_path: Path) -> None:
    records = metrics("proof")
    write_metrics(tmp_path / "work", records if ended else records[:-12])
    write_live(tmp_path / "work", "proof", tmp_path / "live" / "proof.html")
    page = (tmp_path / "live" / "proof.html").read_text(encoding="utf-8")
    assert ('http-equiv="refresh"' in page) is not ended
    assert "looped core, held out" in page
    assert ("ended" if ended else "as of update") in page


def test_there_is_none_before_the_first_evaluation(metrics: Any, tmp_path: Path) -> None:
    write_metrics(tmp_path, metrics("proof")[:1])
    with pytest.raises(DataError, match="at least one held-out evaluation"):
        write_live(tmp_path, "proof", tmp_path / "page.html")
