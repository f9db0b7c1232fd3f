"""The cache of the real data flow, and what `plan`, `accept`, `gc` and `lineage` say of it.

One store for the file, in the order of the tests: each leaves the recipe's own data built.
"""

import json
import random
import shutil
from pathlib import Path

import pytest

from flows import foretell, upkeep
from flows.prepare import prepare
from shadow_model.receipt import Receipt
from shadow_model.run_record import run_records
from shadow_model.store import Store

pytestmark = pytest.mark.usefixtures("prefect_api")
WORDS = ("loop", "table", "row", "shadow", "token", "proof", "flat", "bin", "shard", "window")
RECIPE = """
base = "tiny"
[sources]
num_pieces = 320
shard_tokens = 512
val_every = 3
inputs = [{ name = "books", kind = "text", path = "text" }]
[pack]
val_every = 3
"""


class Workshop:
    """A recipe with its data, and the store that it is prepared in."""

    def __init__(self, folder: Path) -> None:
        self.recipe, self.store = folder / "mine.toml", Store(folder / "store")
        (folder / "text").mkdir(parents=True)
        draw = random.Random(0)
        for number in range(24):
            lines = [" ".join(draw.choices(WORDS, k=40)) for _ in range(10)]
            (folder / "text" / f"book_{number:02}.txt").write_text("\n\n".join(lines))
        self.recipe.write_text(RECIPE)

    def prepare(self, recipe: Path | None = None, force: str | None = None) -> set[str]:
        """Run the flow; returns the stages that it built."""
        prepare(str(recipe or self.recipe), store=str(self.store.root), force=force)
        return {use.stage for use in run_records(self.store)[0].uses if use.state == "built"} - {
            "raw"
        }

    def receipt(self, stage: str) -> Receipt:
        """Return the first receipt of a stage that the last run used."""
        use = next(use for use in run_records(self.store)[0].uses if use.stage == stage)
        receipt = self.store.find(use.stage, use.key)
        assert receipt is not None
        return receipt


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, prefect_api: None) -> Workshop:
    del prefect_api
    shop = Workshop(tmp_path_factory.mktemp("shop"))
    assert shop.prepare() == {"sources", "table", "remap", "pack"}
    return shop


@pytest.fixture
def copy(shop: Workshop, tmp_path: Path) -> Path:
    """The same recipe and bytes in another folder."""
    shutil.copytree(shop.recipe.parent / "text", tmp_path / "copy" / "text")
    return Path(shutil.copy(shop.recipe, tmp_path / "copy" / "mine.toml"))


def told(shop: Workshop, capsys: pytest.CaptureFixture[str], recipe: Path) -> str:
    """Return what `shadow plan` prints, its lines joined."""
    capsys.readouterr()
    job = {"flow": "prepare", "recipe": str(recipe), "store": str(shop.store.root)}
    assert foretell.main([json.dumps({"flow": "plan", "parameters": job})]) == 0
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")


def test_the_same_bytes_in_another_folder_are_a_hit(
    shop: Workshop, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "nothing would run: all " in told(shop, capsys, copy)
    assert shop.prepare(copy) == set()


def test_one_changed_byte_misses_what_reads_it_and_what_follows(
    shop: Workshop, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = copy.parent / "text" / "book_03.txt"
    book.write_text("P" + book.read_text()[1:])
    plan = told(shop, capsys, copy)
    assert "book_03.txt changed" in plan
    assert "because sources runs" in plan
    assert shop.prepare(copy) == {"sources", "table", "remap", "pack"}


def test_one_changed_field_misses_its_stage_and_what_follows_alone(
    shop: Workshop, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy.write_text(copy.read_text() + "shuffle_seed = 7\n")
    plan = told(shop, capsys, copy)
    assert "config.config.shuffle_seed: 0 -> 7" in plan
    assert "1 would run" in plan
    assert shop.prepare(copy) == {"pack"}


@pytest.mark.parametrize(("stage", "name"), [("pack", "val.bin"), ("remap", "receipt.json")])
def test_a_damaged_output_alone_is_built_again(
    shop: Workshop, capsys: pytest.CaptureFixture[str], stage: str, name: str
) -> None:
    assert shop.prepare() == set()
    path = shop.store.folder(shop.receipt(stage)) / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert name in told(shop, capsys, shop.recipe)
    assert shop.prepare() == {stage}
    if name != "receipt.json":
        assert path.read_bytes() == whole


def test_force_runs_a_stage_and_what_reads_it(shop: Workshop) -> None:
    assert shop.prepare(force="remap") == {"remap", "pack"}


def test_a_stage_that_is_none_is_refused_before_anything_runs(
    shop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {"flow": "prepare", "recipe": "tiny", "store": str(shop.store.root), "force": "tabel"}
    assert foretell.main([json.dumps({"flow": "plan", "parameters": job})]) == 2
    error = capsys.readouterr().err
    assert "sources, table, remap, pack" in error
    assert "Did you mean 'table'?" in error


def test_accept_refuses_what_did_not_change_in_code_alone(
    shop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {"flow": "prepare", "recipe": str(shop.recipe), "store": str(shop.store.root)}
    job |= {"stage": "table", "reason": "none"}
    assert foretell.main([json.dumps({"flow": "accept", "parameters": job})]) == 2
    assert "found cached: built 20" in capsys.readouterr().err


def test_the_bins_lead_back_to_the_books(
    shop: Workshop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = shop.receipt("pack")
    job = {"store": str(shop.store.root), "file": str(shop.store.folder(pack) / "train.bin")}
    picture = tmp_path / "lineage.svg"
    parameters = {**job, "picture": str(picture)}
    assert upkeep.main([json.dumps({"flow": "lineage", "parameters": parameters})]) == 0
    tree = capsys.readouterr().out
    assert "book_00.txt" in tree
    assert picture.stat().st_size > 1000


def test_gc_frees_what_the_last_run_does_not_need(
    shop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {"store": str(shop.store.root), "keep": 1, "apply": False}
    upkeep.main([json.dumps({"flow": "gc", "parameters": job})])
    dry = capsys.readouterr().out
    assert "would remove" in dry
    assert "add --apply to remove it" in dry
    upkeep.main([json.dumps({"flow": "gc", "parameters": {**job, "apply": True}})])
    assert "freed " in capsys.readouterr().out
    assert shop.prepare() == set(), "all of the last run is there still"
