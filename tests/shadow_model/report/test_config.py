"""The page's choices have bounds."""

import pytest

from shadow_model.errors import ConfigError
from shadow_model.report.config import ReportConfig


@pytest.mark.parametrize("data", [{"max_points": 2}, {"title": ""}, {"max_previews": -1}])
def test_values_out_of_bounds_are_refused(data: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(data))):
        ReportConfig.parse(data, "recipe")


def test_every_field_is_described() -> None:
    assert all(field.description for field in ReportConfig.model_fields.values())
