"""What a stage keeps so that a killed attempt loses little: checkpoints, in a folder of their own.

work/<stage>-<key>/work.json    whose work it is, and of which code
work/<stage>-<key>/...          the stage's own

The key is of inputs and config alone: work outlives a change of code. But it is gone on with only
where someone has said that the change does it no harm; the stage's receipt then says so.
"""

import copy
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from shadow_model.differences import code_changes
from shadow_model.errors import CheckpointError, ConfigError
from shadow_model.reading import load_json, reading
from shadow_model.receipt import Acceptance, FolderName, Identity
from shadow_model.schema import Schema
from shadow_model.store import Store, write_whole

RECORD = "work.json"


class WorkRecord(Schema):
    """Whose unfinished work a folder holds."""

    version: Literal[1] = 1
    stage: FolderName
    key: FolderName = Field(description="of the stage that last worked on it")
    code: dict[str, str] = Field(description="module -> sha256 of the code that it goes on with")
    continued: tuple[Acceptance, ...] = Field((), description="changes of code that were accepted")


@dataclass(frozen=True)
class Unfinished:
    """The unfinished work of a stage.

    Args:
        free: Paths of config fields that may change from attempt to attempt.
        worth: Pattern of what would be lost if the work began again.
    """

    store: Store
    identity: Identity
    free: tuple[tuple[str, ...], ...] = ()
    worth: str = "*"

    @property
    def name(self) -> str:
        """Name of its folder, and of its lock."""
        config = copy.deepcopy(self.identity.config)
        for path in self.free:
            _drop(config, path)
        of_all_code = self.identity.replace(code={}, config=config)
        return f"{self.identity.stage}-{of_all_code.key}"

    @property
    def folder(self) -> Path:
        """Where it lies, or would lie."""
        return self.store.root / "work" / self.name

    def open(self) -> Path:
        """Return the folder, made if absent, to go on with what stands there.

        Raises:
            CheckpointError: Other code began the work, and nobody has accepted that.
        """
        record = self.record()
        if changes := self.changes():
            stage = self.identity.stage
            raise CheckpointError(
                self.folder,
                "be unfinished work of the present code",
                f"changed since: {', '.join(changes)}",
                f"Go on with it: `shadow accept {stage} --reason ...`; "
                f"or begin again: `shadow run --force {stage}`.",
            )
        if not self.is_begun():
            self.forget()
            record = None
        self._write(record.continued if record else ())
        return self.folder

    def record(self) -> WorkRecord | None:
        """Return what the folder says of itself; None where nothing was begun.

        Raises:
            CheckpointError: It says nothing that can be read.
        """
        return read_work(self.folder)

    def is_begun(self) -> bool:
        """Tell whether there is work that would be lost if it began again."""
        return self.record() is not None and self._is_worth_it()

    def changes(self) -> tuple[str, ...]:
        """Name the changes of code since the work was left that nobody has accepted."""
        record = self.record()
        if record is None or not self.is_begun():
            return ()
        return tuple(code_changes(self.store, record.code, self.identity))

    def accept(self, reason: str) -> Acceptance | None:
        """Go on with the work though its code changed; None where no code changed."""
        record = self.record()
        if record is None or not (changes := self.changes()):
            return None
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        accepted = Acceptance(reason=reason, key=record.key, code=changes, at=now)
        self._write((*record.continued, accepted))
        return accepted

    def forget(self) -> None:
        """Remove the work."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _is_worth_it(self) -> bool:
        return any(path.name != RECORD for path in self.folder.glob(self.worth))

    def _write(self, continued: Iterable[Acceptance]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.store.code.write(self.identity.code)
        record = WorkRecord(
            stage=self.identity.stage,
            key=self.identity.key,
            code=self.identity.code,
            continued=tuple(continued),
        )
        write_whole(self.folder / RECORD, record.model_dump_json(indent=1).encode())


def read_work(folder: Path) -> WorkRecord | None:
    """Return what a folder of unfinished work says of itself; None where nothing was begun.

    Raises:
        CheckpointError: It says nothing that can be read.
    """
    path = folder / RECORD
    if not path.exists():
        return None
    fix = "Delete the folder; the stage begins again."
    with reading(CheckpointError, path, "say whose work it is", fix, ConfigError):
        return WorkRecord.parse(load_json(path), path)


def _drop(config: dict[str, Any], path: tuple[str, ...]) -> None:
    *above, last = path
    for name in above:
        config = config.get(name) or {}
    config.pop(last, None)
