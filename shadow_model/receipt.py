"""The record beside every stage's outputs: what it read, with which config and code, what it wrote.

Receipts are the lineage: an input names the stage and key that made it, so any output leads back
to the raw sources through receipts alone.
"""

import importlib.metadata
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field

from shadow_model.digest import sha256_text
from shadow_model.fingerprint import code_fingerprint
from shadow_model.schema import Schema, canonical_json

FORMAT_VERSION: Literal[1] = 1
_PACKAGES = ("torch", "prefect", "numpy", "pyarrow", "shadow-proof")


FolderName = Annotated[str, Field(pattern=r"^[^./\\\x00][^/\\\x00]*$", max_length=200)]
"""Of a stage or a key: it becomes a folder of the store, and must not lead out of it."""


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts:
        raise ValueError(f"{name!r} does not lie below the stage's folder")
    return name


class FileRecord(Schema):
    """One file of a stage."""

    name: Annotated[str, AfterValidator(_inside)] = Field(
        description="path below the stage's folder, with forward slashes"
    )
    sha256: str
    bytes: int = Field(ge=0)


class InputRecord(Schema):
    """One stage that was read."""

    stage: FolderName
    key: FolderName
    sha256: str = Field(description="digest of the names and digests of all its outputs")
    bytes: int = Field(ge=0)


class Acceptance(Schema):
    """Why outputs of other code stand for a stage's own."""

    reason: str = Field(min_length=1)
    key: str = Field(description="of the stage as it was built")
    code: tuple[str, ...] = Field(description="what had changed since")
    at: str = Field(description="UTC, ISO 8601")

    @property
    def what(self) -> str:
        """What had changed, in one line."""
        return ", ".join(self.code)


class Identity(Schema):
    """Everything that decides a stage's result; its digest is the cache key."""

    stage: str
    inputs: tuple[InputRecord, ...]
    config: dict[str, Any] = Field(description="the fields that can change the result")
    code: dict[str, str] = Field(description="module -> sha256 of its code")
    environment: dict[str, str] = Field(description="device, torch version... where they matter")

    @classmethod
    def of(
        cls,
        stage: str,
        inputs: Sequence["Receipt"],
        config: Mapping[str, Any],
        modules: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> Self:
        """Gather the identity of a stage from the receipts it reads and its config.

        Args:
            config: Name -> config object or plain value; fields marked `NOT_IN_KEY` are left out.
            modules: Modules whose first-party import closure is the stage's code.
        """
        return cls(
            stage=stage,
            inputs=tuple(r.as_input() for r in inputs),
            config=json.loads(canonical_json(config)),
            code=code_fingerprint(modules),
            environment=dict(environment or {}),
        )

    @property
    def key(self) -> str:
        """Cache key: 32 hex digits. Keys of inputs do not enter it, only their contents do."""
        content = self.model_dump(mode="json")
        content["inputs"] = [i.sha256 for i in self.inputs]
        return sha256_text(canonical_json(content))[:32]


class Receipt(Schema):
    """What one finished stage read, did and wrote."""

    version: Literal[1] = FORMAT_VERSION
    stage: FolderName
    key: FolderName
    inputs: tuple[InputRecord, ...] = ()
    config: dict[str, Any] = Field(default_factory=dict)
    code: dict[str, str] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict)
    outputs: tuple[FileRecord, ...] = ()
    counts: dict[str, Any] = Field(
        default_factory=dict, description="tokens, rows, shards, dropped..., and figures measured"
    )
    started: str = Field("", description="UTC, ISO 8601")
    ended: str = Field("", description="UTC, ISO 8601")
    seconds: float = Field(0.0, description="wall-clock time of the stage")
    host: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    flow_run_id: str | None = None
    task_run_id: str | None = None
    accepted: Acceptance | None = Field(None, description="null: built by the code it names")
    continued: tuple[Acceptance, ...] = Field(
        (), description="changes of code that its unfinished work was gone on with across"
    )

    @property
    def acceptances(self) -> tuple[Acceptance, ...]:
        """All changes of code that were accepted on the way to its outputs."""
        return (*([self.accepted] if self.accepted else []), *self.continued)

    def as_input(self) -> InputRecord:
        """Return how a later stage refers to this one: by the content of its outputs."""
        names = [(f.name, f.sha256) for f in self.outputs]
        return InputRecord(
            stage=self.stage,
            key=self.key,
            sha256=sha256_text(canonical_json(names)),
            bytes=sum(f.bytes for f in self.outputs),
        )

    def output(self, name: str) -> FileRecord:
        """Return the record of one output file; KeyError where the stage has none of that name."""
        return {f.name: f for f in self.outputs}[name]


def installed_versions() -> dict[str, str]:
    """Return the versions that a receipt states: Python and the packages that compute."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
