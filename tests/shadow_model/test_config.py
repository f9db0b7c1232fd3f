"""A run's parts must fit one another."""

import pytest

from shadow_model.config import RunConfig
from shadow_model.errors import ConfigError
from shadow_model.recipes import tiny


def test_the_split_is_decided_once() -> None:
    run = tiny()
    with pytest.raises(ConfigError, match=r"val_every 11 and pack\.val_every 9 must be equal"):
        run.replace(pack=run.pack.replace(val_every=9))


def test_the_arms_are_a_looped_and_a_flat_one() -> None:
    run = tiny()
    with pytest.raises(ConfigError, match=r"proof.model.flat must be 0"):
        run.replace(proof=run.control, control=run.proof)
    with pytest.raises(ConfigError, match="different tags"):
        run.replace(control=run.control.replace(tag="proof"))


def test_a_run_survives_json() -> None:
    run = tiny()
    assert RunConfig.model_validate_json(run.model_dump_json()) == run
