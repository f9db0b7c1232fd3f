"""What the report page shows."""

from pydantic import Field

from shadow_model.schema import Schema


class ReportConfig(Schema):
    """Choices of the page; none of them changes a figure."""

    title: str = Field(
        "Does the looped core beat the flat control?",
        min_length=1,
        max_length=120,
        description="heading of the page, 1 to 120 characters",
    )
    max_previews: int = Field(
        24, ge=0, le=200, description="decoded pictures shown, at most (0 to 200)"
    )
    max_points: int = Field(
        400, ge=20, le=5000, description="points a curve, at most (20 to 5000); means of intervals"
    )
    price_per_hour: float | None = Field(
        None, ge=0, description="money that an hour of the training device costs; null: not shown"
    )
    currency: str = Field("USD", min_length=1, max_length=8, description="of `price_per_hour`")
    small_run_tokens: int = Field(
        100_000_000,
        ge=0,
        description="a run of fewer training tokens is called too small to carry over",
    )
