"""Where stages keep their outputs: one folder a key, published whole or not at all.

stages/<stage>/<key>/...           outputs, and receipt.json, written last
work/<stage>-<key>/                unfinished work of long stages (unfinished.py)
tmp/                               folders being written
runs/<id>.json                     which stages each run used (run_record.py)
code/<sha256>.json                 the functions of a module, by digest (code_notes.py)
publish.lock                       held for the renames that publish, and remove, folders
digests.sqlite                     remembered file digests
"""

import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from shadow_model.code_notes import CodeNotes
from shadow_model.digest import DigestMemo, sha256_file
from shadow_model.disk import naming_full_disk
from shadow_model.errors import DataError
from shadow_model.locking import locked
from shadow_model.reading import load_json, reading
from shadow_model.receipt import (
    FORMAT_VERSION,
    Acceptance,
    FileRecord,
    Identity,
    Receipt,
    installed_versions,
)

RECEIPT = "receipt.json"
TEMPORARY = "tmp"
CODE = "code"


class Build:
    """A stage being built: write files below `folder`, put figures into `counts`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts: dict[str, Any] = {}
        self.continued: tuple[Acceptance, ...] = ()
        self.receipt: Receipt | None = None


class Store:
    """A folder of finished stages.

    Args:
        root: The store's folder; made on first use.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).expanduser().resolve()
        self.memo = DigestMemo(self.root / "digests.sqlite")
        self.code = CodeNotes(self.root / CODE)

    def folder(self, receipt: Receipt | Identity) -> Path:
        """Return the folder that holds, or will hold, a stage's outputs."""
        return self.root / "stages" / receipt.stage / receipt.key

    def find(self, stage: str, key: str, deep: bool = False) -> Receipt | None:
        """Return the receipt of a finished stage whose outputs are still what it says, or None.

        Sizes are always compared; digests when `deep`, or when the memo does not vouch.
        """
        folder = self.root / "stages" / stage / key
        try:
            receipt = read_receipt(folder / RECEIPT)
        except DataError:
            return None
        if (receipt.stage, receipt.key) != (stage, key):  # a folder that was copied or renamed
            return None
        return receipt if self.verify(receipt, deep) is None else None

    def verify(self, receipt: Receipt, deep: bool = False) -> str | None:
        """Return what is wrong with the first absent or altered output, or None."""
        digest: Callable[[Path], str] = sha256_file if deep else self.memo.digest
        folder = self.folder(receipt)
        for record in receipt.outputs:
            path = folder / record.name
            if not path.is_file():
                return f"{path} is absent"
            if path.stat().st_size != record.bytes:
                return f"{path} has {path.stat().st_size} bytes, its receipt says {record.bytes}"
            if digest(path) != record.sha256:
                return f"{path} was altered: its sha256 differs from its receipt"
        return None

    def damage(self, identity: Identity) -> str | None:
        """Return why a stage's folder is no hit; None where it is one, or is absent."""
        folder = self.folder(identity)
        if not folder.exists():
            return None
        try:
            return self.verify(read_receipt(folder / RECEIPT))
        except DataError as error:
            return f"{error.where}: {error.found}"

    def receipts(self) -> Iterator[Receipt]:
        """Yield every receipt of the store, oldest first; DataError names one that is none."""
        paths = (self.root / "stages").glob(f"*/*/{RECEIPT}")
        for path in sorted(paths, key=lambda p: p.stat().st_mtime_ns):
            yield read_receipt(path)

    @contextmanager
    def build(
        self,
        identity: Identity,
        flow_run_id: str | None = None,
        task_run_id: str | None = None,
    ) -> Iterator[Build]:
        """Build a stage under a temporary name; at the end write its receipt, then rename it.

        An exception leaves nothing behind. Whatever stood at the final place is replaced: of two
        builds of one key the last to end stays, whole.

        Raises:
            DataError: The disk ran full.
        """
        started, clock = _now(), time.monotonic()
        with (
            self.temporary(f"{identity.stage}-{identity.key}") as folder,
            naming_full_disk(self.root),
        ):
            build = Build(folder)
            yield build
            receipt = Receipt(
                **identity.model_dump(),
                key=identity.key,
                outputs=tuple(self._records(build.folder)),
                counts=to_jsonable_python(build.counts, fallback=_plain_scalar),
                started=started,
                ended=_now(),
                seconds=round(time.monotonic() - clock, 3),
                host=socket.gethostname(),
                versions=installed_versions(),
                flow_run_id=flow_run_id,
                task_run_id=task_run_id,
                continued=build.continued,
            )
            self._publish(build.folder, receipt)
            build.receipt = receipt

    def accept(
        self, old: Receipt, identity: Identity, reason: str, changes: Sequence[str]
    ) -> Receipt:
        """Let the outputs of `old` stand for `identity`, which differs in its code only.

        Args:
            changes: What of the code changed, for the receipt.

        Returns:
            The new receipt: the old one's figures and times, the new code, and the reason.
        """
        assert (old.stage, old.config, old.environment) == (
            identity.stage,
            identity.config,
            identity.environment,
        )
        key = old.accepted.key if old.accepted else old.key
        accepted = Acceptance(reason=reason, key=key, code=tuple(changes), at=_now())
        fields = {**dict(old), **dict(identity), "key": identity.key, "accepted": accepted}
        receipt = Receipt(**fields)
        with self.temporary(f"{identity.stage}-{identity.key}") as folder:
            for record in old.outputs:
                target = folder / record.name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.hardlink_to(self.folder(old) / record.name)
            self._publish(folder, receipt)
        return receipt

    @contextmanager
    def temporary(self, name: str) -> Iterator[Path]:
        """Make a new folder below tmp/ for the block, and remove it at the end if it still stands.

        A lock file beside it is held meanwhile: another process can tell that its owner lives.
        """
        path = self.root / TEMPORARY / f"{name}.{os.getpid()}.{secrets.token_hex(4)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = lock_of(path)
        with locked(lock):
            path.mkdir()
            try:
                yield path
            finally:
                shutil.rmtree(path, ignore_errors=True)
                lock.unlink()

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Keep folders from being published or removed while the block runs."""
        self.root.mkdir(parents=True, exist_ok=True)
        with locked(self.root / "publish.lock"):
            yield

    def stage_receipts(self, stage: str) -> list[Receipt]:
        """Return the readable receipts of a stage, the newest first."""
        found = [_readable(p) for p in (self.root / "stages" / stage).glob(f"*/{RECEIPT}")]
        return sorted(filter(None, found), key=lambda receipt: receipt.ended, reverse=True)

    def receipt(self, stage: str, key: str) -> Receipt | None:
        """Return a stage's receipt, though its outputs may be gone; None where it is unreadable."""
        return _readable(self.root / "stages" / stage / key / RECEIPT)

    def _records(self, folder: Path) -> Iterator[FileRecord]:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            _sync(path)
            yield FileRecord(
                name=path.relative_to(folder).as_posix(),
                sha256=self.memo.digest(path),
                bytes=path.stat().st_size,
            )

    def _publish(self, folder: Path, receipt: Receipt) -> None:
        write_whole(folder / RECEIPT, receipt.model_dump_json(indent=1).encode())
        self.code.write(receipt.code)
        final = self.folder(receipt)
        final.parent.mkdir(parents=True, exist_ok=True)
        with self.temporary("replaced") as replaced, self.publishing():
            if final.exists():
                final.rename(replaced / final.name)
            folder.rename(final)
            _sync(final.parent)


def lock_of(folder: Path) -> Path:
    """Return the lock file of a temporary folder."""
    return folder.with_name(f"{folder.name}.lock")


def read_receipt(path: Path) -> Receipt:
    """Read a receipt.

    Raises:
        DataError: It is absent, is not JSON, lacks a field, or has an unknown format version.
    """
    fix = "Delete the stage's folder; the next run builds it again."
    if not path.exists():
        raise DataError(path, "be a receipt", "no such file", fix)
    with reading(DataError, path, "be a receipt in JSON", fix):
        content = load_json(path)
    try:
        return Receipt.model_validate(content)
    except ValidationError as error:
        must = f"be a receipt of format version {FORMAT_VERSION}"
        found = "; ".join(f"{e['loc']}: {e['msg']}" for e in error.errors())
        raise DataError(path, must, found, fix) from error


def _readable(path: Path) -> Receipt | None:
    try:
        return read_receipt(path)
    except DataError:
        return None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees all of it or nothing of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _plain_scalar(value: Any) -> Any:
    """Turn a figure of an array library into a number: a receipt must not fail at the very end."""
    return value.item() if hasattr(value, "item") else str(value)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
