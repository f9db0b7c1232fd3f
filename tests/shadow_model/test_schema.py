"""Configs refuse what they do not know, and only what can change a result enters a key."""

from pathlib import Path

import pytest
from pydantic import Field

from shadow_model.errors import ConfigError
from shadow_model.schema import NOT_IN_KEY, Schema, canonical_json


class Optimiser(Schema):
    learning_rate: float = Field(3e-4, gt=0)
    log_folder: Path | None = Field(None, json_schema_extra=NOT_IN_KEY)


class Run(Schema):
    width: int = Field(512, ge=8)
    optimiser: Optimiser = Optimiser()
    extra: Optimiser | None = None
    parts: tuple[Optimiser, ...] = ()
    data: Path = Field(Path("x"), json_schema_extra={**NOT_IN_KEY, "title": "data"})


def test_parse_reports_every_problem_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Run.parse({"width": 1, "optimiser": {"learning_rate": -1.0}}, "recipe.toml")
    message = str(caught.value)
    assert "recipe.toml" in message
    assert "width = 1" in message
    assert "optimiser.learning_rate = -1.0" in message


@pytest.mark.parametrize(
    ("data", "where", "near"),
    [
        ({"widht": 3}, "widht", "width"),
        ({"optimiser": {"learning_rte": 1.0}}, "optimiser.learning_rte", "learning_rate"),
        ({"extra": {"learning_rte": 1.0}}, "extra.learning_rte", "learning_rate"),
        ({"parts": [{"learning_rte": 1.0}]}, "parts.0.learning_rte", "learning_rate"),
    ],
)
def test_misspelt_field_is_named_with_the_nearest_of_its_level(
    data: dict[str, object], where: str, near: str
) -> None:
    with pytest.raises(ConfigError, match=f"'{where}'.*did you mean '{near}'"):
        Run.parse(data, "recipe")


def test_unlike_field_lists_the_known_names_of_its_level() -> None:
    with pytest.raises(ConfigError, match="known here: learning_rate, log_folder"):
        Run.parse({"optimiser": {"qqq": 1}}, "recipe")


def test_replace_validates_and_leaves_the_original() -> None:
    run = Run()
    assert run.replace(width=64).width == 64
    assert run.width == 512
    with pytest.raises(ConfigError, match="width"):
        run.replace(width=0)
    with pytest.raises(ConfigError, match="did you mean 'width'"):
        run.replace(widht=64)


def test_schema_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Run().width = 3  # type: ignore[misc]


def test_key_fields_leave_out_marked_fields_at_every_depth() -> None:
    def run(folder: str) -> Run:
        optimiser = Optimiser(log_folder=Path(folder))
        return Run(optimiser=optimiser, extra=optimiser, parts=(optimiser,), data=Path(folder))

    assert run("/a").key_fields() == run("/b").key_fields()
    assert "log_folder" not in canonical_json(run("/a"))
    assert "title" not in run("/a").key_fields()
    assert canonical_json(run("/a")) != canonical_json(run("/a").replace(width=64))


def test_canonical_json_is_one_text_for_equal_values() -> None:
    assert canonical_json({"b": (1, 2), "a": Path("x/y")}) == '{"a":"x/y","b":[1,2]}'
    assert canonical_json({"a": 1, "b": 2}) == canonical_json({"b": 2, "a": 1})


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()])
def test_values_without_stable_identity_are_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        canonical_json({"x": value})
