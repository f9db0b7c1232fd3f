"""Errors say what must hold, what was found and what to do, and survive a process boundary."""

import pickle

import pytest

from shadow_model.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    LayoutError,
    NumericsError,
    ShadowError,
)


def test_message_has_all_parts() -> None:
    error = DataError("bins/val.bin", "hold one window", 12, "Lower ctx.")
    assert str(error) == "bins/val.bin: must hold one window; found 12. Lower ctx."


@pytest.mark.parametrize(
    "child", [CheckpointError, ConfigError, DataError, LayoutError, NumericsError]
)
def test_children_are_shadow_errors_and_can_be_pickled(child: type[ShadowError]) -> None:
    error = child("here", "hold", None, "Do this.")
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, ShadowError)
    assert type(copy) is child
    assert (str(copy), copy.fix) == (str(error), "Do this.")
