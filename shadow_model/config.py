"""The config of a whole run: one part for each stage, checked against one another."""

from typing import Literal, Self

from pydantic import Field, model_validator

from shadow_model.data.inputs import SourcesConfig
from shadow_model.data.pack import PackConfig
from shadow_model.data.remap import RemapConfig
from shadow_model.generate.config import ExportConfig
from shadow_model.hub.config import HubConfig
from shadow_model.report.config import ReportConfig
from shadow_model.schema import Schema
from shadow_model.smoke import SmokeConfig
from shadow_model.speed import SpeedConfig
from shadow_model.table.config import TableConfig
from shadow_model.train.config import ArmConfig

FurtherArm = Literal["flat_boundary", "loop_fixed", "flat_matched"]


class RunConfig(Schema):
    """Every choice of a chain.

    Raises:
        ConfigError: From `parse` and `replace`, where parts do not fit one another.
    """

    name: str = Field(min_length=1, max_length=64, description="of the recipe")
    sources: SourcesConfig = Field(description="raw material and how it becomes ids")
    table: TableConfig = Field(TableConfig(), description="codes of the rows")
    remap: RemapConfig = Field(RemapConfig(), description="old ids becoming rows")
    pack: PackConfig = Field(PackConfig(), description="shards becoming bins")
    smoke: SmokeConfig = Field(SmokeConfig(), description="the check of the model")
    speed: SpeedConfig = Field(SpeedConfig(), description="the measurement of the step")
    proof: ArmConfig = Field(description="the looped model")
    control: ArmConfig = Field(description="the flat control")
    arms: tuple[FurtherArm, ...] = Field(
        (), description="further arms, each on its own full schedule; see `recipes.FURTHER_ARMS`"
    )
    seeds: int = Field(
        1, ge=1, le=64, description="seeds an arm: the recipe's own, and those that follow it"
    )
    export: ExportConfig = Field(ExportConfig(), description="samples of the looped model")
    report: ReportConfig = Field(ReportConfig(), description="the page")
    hub: HubConfig | None = Field(None, description="where the run is pushed to; null: nowhere")

    @model_validator(mode="after")
    def _check(self) -> Self:
        problems = []
        if self.sources.val_every != self.pack.val_every:
            problems.append(
                f"sources.val_every {self.sources.val_every} and pack.val_every "
                f"{self.pack.val_every} must be equal: the split is decided once"
            )
        if self.proof.model.flat or not self.control.model.flat:
            problems.append("proof.model.flat must be 0 and control.model.flat above 0")
        if len(set(self.arms)) != len(self.arms):
            problems.append(f"arms must name each once, found {list(self.arms)}")
        if self.proof.tag == self.control.tag:
            problems.append(f"proof and control must have different tags, found {self.proof.tag!r}")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def with_seed(self, number: int) -> Self:
        """Return the run with the seed of its arms that many further on, 0 for its own."""
        arms = {name: getattr(self, name) for name in ("proof", "control")}
        moved = {
            name: arm.replace(train=arm.train.replace(seed=arm.train.seed + number))
            for name, arm in arms.items()
        }
        return self.replace(**moved)
