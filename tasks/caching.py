"""The only cache rule: a stage is cached if its receipt stands in the store with whole outputs.

Prefect's stock policies hash paths or task source and serve stale results when bytes, called code
or outputs change. Here the key is the stage's identity (contents read, config, code), the very one
that its folder and receipt carry, and Prefect's storage answers from the store's receipts alone.
A key is built by one holder at a time (SERIALIZABLE, flock).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prefect._internal.result_records import ResultRecordMetadata
from prefect.cache_policies import CachePolicy
from prefect.context import TaskRunContext
from prefect.filesystems import LocalFileSystem
from prefect.serializers import JSONSerializer

from shadow_model.receipt import Identity, Receipt
from shadow_model.store import Store, write_whole
from tasks.locks import FlockLockManager

RESULTS = "results"
LOCKS = "locks"


@dataclass
class StageCache(CachePolicy):
    """Keys a task by the identity of its stage.

    Args:
        identify: Task inputs -> identity; the function that the task's body builds with.
    """

    identify: Callable[[Mapping[str, Any]], Identity] | None = None

    def compute_key(
        self,
        task_ctx: TaskRunContext | None,  # noqa: ARG002
        inputs: dict[str, Any],
        flow_parameters: dict[str, Any] | None,  # noqa: ARG002
        **_kwargs: Any,
    ) -> str:
        """Return "<stage>-<key>"; works outside of a run, too."""
        assert self.identify is not None
        identity = self.identify(inputs)
        return f"{identity.stage}-{identity.key}"


class ReceiptKeys(LocalFileSystem):
    """Prefect's records of finished tasks, made from the store's receipts each time they are read.

    A key whose receipt or outputs are absent or altered raises, which Prefect takes as a miss.
    Nothing is kept here, so Prefect and the store cannot disagree.
    """

    _block_type_slug = "shadow-receipt-keys"

    def read_path(  # type: ignore[override]  # Prefect's local storage is synchronous, too
        self, path: str, _sync: bool | None = None
    ) -> bytes:
        """Return Prefect's record of "<stage>-<key>"."""
        return self._record(path)

    async def aread_path(self, path: str) -> bytes:
        """Return Prefect's record of "<stage>-<key>"."""
        return self._record(path)

    def write_path(  # type: ignore[override]
        self,
        path: str,
        content: bytes,  # noqa: ARG002
        _sync: bool | None = None,
    ) -> str:
        """Keep nothing: the receipt was written with the outputs."""
        return path

    async def awrite_path(self, path: str, content: bytes) -> str:  # noqa: ARG002
        """Keep nothing: the receipt was written with the outputs."""
        return path

    def _record(self, path: str) -> bytes:
        result = self._resolve_path(path)
        stage, _, key = result.name.rpartition("-")
        receipt = Store(result.parents[1]).find(stage, key)
        if receipt is None:
            raise FileNotFoundError(f"no whole outputs of {result.name}")
        serializer = JSONSerializer[Receipt]()
        result.parent.mkdir(parents=True, exist_ok=True)
        write_whole(result, serializer.dumps(receipt))
        return ResultRecordMetadata(serializer=serializer, storage_key=str(result)).dump_bytes()


def cache_options(
    store: Store, identify: Callable[[Mapping[str, Any]], Identity]
) -> dict[str, Any]:
    """Return the task options that cache a stage in `store`."""
    policy = StageCache(identify=identify).configure(
        key_storage=ReceiptKeys(basepath=str(store.root / RESULTS)),
        lock_manager=FlockLockManager(store.root / LOCKS),
        isolation_level="SERIALIZABLE",
    )
    return {
        "cache_policy": policy,
        "persist_result": True,
        "result_serializer": "json",
        "result_storage": store.root / RESULTS,
        "cache_result_in_memory": False,
    }
