"""The pull step enters the checkout, or says what is missing."""

from pathlib import Path

import pytest
from prefect.settings import PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

from flows.checkout import enter_checkout
from shadow_model.errors import ConfigError

ROOT = Path(__file__).parents[2]


def test_the_checkout_becomes_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHADOW_ROOT", str(ROOT))
    assert enter_checkout("SHADOW_ROOT") == {"directory": str(ROOT)}
    assert Path.cwd() == ROOT


@pytest.mark.parametrize("root", ["", "/nowhere", None])
def test_a_root_that_is_not_set_is_told_in_the_log(
    root: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", "00000000-0000-0000-0000-000000000001")
    if root is None:
        monkeypatch.delenv("SHADOW_ROOT", raising=False)
    else:
        monkeypatch.setenv("SHADOW_ROOT", root)
    problem = "SHADOW_ROOT: must name the checkout of this project"
    no_api = temporary_settings({PREFECT_LOGGING_TO_API_ENABLED: False})
    with no_api, pytest.raises(ConfigError, match=problem):
        enter_checkout("SHADOW_ROOT")
    (record,) = caplog.records
    assert "Export it where the worker is started" in record.getMessage()
    assert record.__dict__["flow_run_id"].endswith("1")
