"""Which repository of the Hub a run is pushed to."""

from typing import Literal

from pydantic import Field

from shadow_model.schema import Schema


class HubConfig(Schema):
    """A repository, and how often it is written. The token is huggingface_hub's own affair."""

    repo: str = Field(
        pattern=r"^[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}$",
        description="OWNER/NAME; made if absent",
    )
    repo_type: Literal["dataset", "model"] = Field("dataset", description="kind of a new one")
    private: bool = Field(True, description="whether a new one is private")
    every_minutes: float = Field(
        10.0, ge=3, le=24 * 60, description="at most one push in so many minutes (3 to 1440)"
    )
