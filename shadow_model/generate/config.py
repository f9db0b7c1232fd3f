"""What the export stage shows of a model."""

from pydantic import Field

from shadow_model.generate.sampling import Sampling
from shadow_model.schema import Schema


class ExportConfig(Schema):
    """The samples beside an exported model, and how its speed is measured."""

    samples: int = Field(3, ge=0, le=64, description="samples of each kind")
    sampling: Sampling = Field(
        Sampling(temperature=0.8, top_k=64), description="how they are drawn"
    )
    text_rows: int = Field(96, ge=1, le=4096, description="rows of a text sample, at most")
    prompt_rows: int = Field(16, ge=1, le=4096, description="rows of held-out text it begins with")
    speed_rows: int = Field(48, ge=1, le=4096, description="rows generated for each measured speed")
