"""From any output file back to the raw sources, as text and as a picture."""

import json
import shutil
from pathlib import Path

import pytest

from shadow_model.errors import ConfigError, DataError
from shadow_model.lineage import lineage_lines, trace
from shadow_model.lineage_picture import draw_lineage
from shadow_model.receipt import Identity, Receipt
from shadow_model.store import Store


def build(store: Store, stage: str, *inputs: Receipt, **config: object) -> Receipt:
    with store.build(Identity.of(stage, inputs, config, [])) as one:
        (one.folder / "deep").mkdir()
        (one.folder / "deep" / "out").write_text(f"{stage} {json.dumps(config)}")
    assert one.receipt is not None
    return one.receipt


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def page(store: Store) -> Path:
    """A report on bins that were made of five batches."""
    files = [{"name": f"book_{n}.txt", "sha256": f"{n:064}", "bytes": 10} for n in range(14)]
    raw = build(store, "raw", files=files)
    sources = build(store, "sources", raw)
    batches = [build(store, "remap", sources, number=n) for n in range(5)]
    report = build(store, "report", raw, build(store, "pack", *batches))
    return store.folder(report) / "deep" / "out"


def text(store: Store, file: Path) -> list[str]:
    return lineage_lines(trace(store, file))


def test_every_way_leads_to_the_raw_files(store: Store, page: Path) -> None:
    lines = text(store, page)
    assert lines[0].startswith(str(page))
    assert [line.lstrip(" |`-").split()[0] for line in lines[1:]] == [
        "report",
        "raw",
        *(f"book_{n}.txt" for n in range(12)),
        "and",
        "pack",
        "remap",
        "sources",
        "raw",
        "remap",
        "sources",
        "remap",
        "sources",
        "and",
    ]
    assert "and 2 more files" in lines[15]
    assert "and 2 more of remap" in lines[-1]
    assert sum("(above)" in line for line in lines) == 3


def test_a_copy_elsewhere_is_found_by_its_content(store: Store, page: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(page, tmp_path / "copy.html"))
    assert text(store, copy)[1:] == text(store, page)[1:]


def test_a_foreign_or_edited_file_is_refused(store: Store, page: Path, tmp_path: Path) -> None:
    page.write_text("edited")
    with pytest.raises(DataError, match="must be what a stage of"):
        trace(store, page)
    with pytest.raises(DataError, match="no such file"):
        trace(store, tmp_path / "absent")


def test_a_collected_stage_is_said_to_be_gone(store: Store, page: Path) -> None:
    shutil.rmtree(store.root / "stages" / "pack")
    assert "(collected since, or built again" in text(store, page)[-1]


def test_an_accepted_stage_says_why(store: Store) -> None:
    old = build(store, "table")
    identity = Identity.of("table", (), {}, ["shadow_model.schema"])
    new = store.accept(old, identity, "only renamed", ["code shadow_model.schema is new"])
    assert "accepted: only renamed" in text(store, store.folder(new) / "deep" / "out")[1]


@pytest.mark.parametrize(("suffix", "start"), [(".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_pictures(store: Store, page: Path, tmp_path: Path, suffix: str, start: bytes) -> None:
    path = tmp_path / f"out{suffix}"
    draw_lineage(trace(store, page), path)
    content = path.read_bytes()
    assert content.startswith(start)
    if suffix == ".svg":
        for name in ("raw", "sources", "5 batches", "pack", "report"):
            assert f"<!-- {name} -->".encode() in content


def test_other_pictures_are_refused(store: Store, page: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"end in \.svg or \.png"):
        draw_lineage(trace(store, page), tmp_path / "out.pdf")
