"""Batches of shards for the remap tasks."""

from shadow_model.receipt import FileRecord, Receipt
from tasks.remap import shard_batches


def sources(*files: tuple[str, int]) -> Receipt:
    outputs = tuple(FileRecord(name=name, sha256="0" * 64, bytes=size) for name, size in files)
    return Receipt(stage="sources", key="0" * 32, outputs=outputs)


def test_only_shards_are_batched_all_of_them_once_in_order() -> None:
    shards = [(f"ids/b/s/part_{n:05}.npz", 1000) for n in range(10)]
    others = [("ids/layout.json", 5), ("ids/pieces.model", 9), ("codecs/picture.json", 3)]
    batches = shard_batches(sources(*others, ("ids/a/s/part_00000.parquet", 1000), *shards))
    names = [name for batch in batches.values() for name in batch]
    assert names == ["a/s/part_00000.parquet", *(f"b/s/part_{n:05}.npz" for n in range(10))]


def test_labels_number_the_shards() -> None:
    batches = shard_batches(sources(*((f"ids/a/s/part_{n:05}.npz", 1000) for n in range(10))))
    assert next(iter(batches)) == "2 remap shards 00000-00001"
    assert list(batches)[-1].endswith("-00009")
    assert len(batches) == 4, "few shards need few tasks"


def test_many_large_shards_are_bounded() -> None:
    size = 1 << 30
    batches = shard_batches(sources(*((f"ids/a/s/part_{n:05}.npz", size) for n in range(500))))
    assert len(batches) == 64


def test_one_shard_is_one_task() -> None:
    assert list(shard_batches(sources(("ids/a/s/part_0.npz", 10)))) == [
        "2 remap shards 00000-00000"
    ]
