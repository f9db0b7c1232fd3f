"""A Hub token in the environment, or where people keep theirs, is in nothing that a run leaves.

The command line is run as a user runs it, in processes of its own; then every byte below the store
(stages, receipts, checkpoints, page, and Prefect's home with its database and artifacts) and every
line that was printed is searched.
"""

import base64
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from shadow_model.errors import ConfigError
from shadow_model.recipes import load
from tasks.child import run_child

TOKENS = {
    "HF_TOKEN": "hf_" + "envToken" * 4,
    "HUGGING_FACE_HUB_TOKEN": "hf_" + "oldToken" * 4,
    "file": "hf_" + "fileToken" * 4,
    "recipe": "hf_" + "recipeToken" * 4,
}
WORDS = ("loop", "table", "row", "shadow", "proof", "flat", "bin", "shard", "window", "core")
RECIPE = f"""
# token = "{TOKENS["recipe"]}"
base = "tiny"
[sources]
num_pieces = 320
shard_tokens = 512
val_every = 3
inputs = [{{ name = "books", kind = "text", path = "text" }}]
[pack]
val_every = 3
"""
TRAINING = """
[table]
dimensions = 8
[speed]
warmup_steps = 1
timed_steps = 2
[proof.train]
tokens = 4096
batch_tokens = 512
micro_batches = 1
lengths = [{ from_frac = 0, ctx_tokens = 64 }]
evaluate_ctx_tokens = 64
evaluate_tokens = 256
evaluate_final_tokens = 256
checkpoint_every_steps = 4
max_epochs = 64
"""


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the command line with tokens wherever people keep them; return its code and output."""
    home = folder / "hub"
    home.mkdir(exist_ok=True)
    (home / "token").write_text(TOKENS["file"])
    tokens = {name: TOKENS[name] for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")}
    done = subprocess.run(
        [sys.executable, "-c", "from flows.cli import main; main()", *arguments],
        env={**os.environ, **tokens, "HF_HOME": str(home), "PYTHONPATH": os.getcwd()},
        cwd=os.getcwd(),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def make_data(folder: Path, recipe: str) -> Path:
    draw = random.Random(0)
    (folder / "text").mkdir()
    (folder / "text" / ".env").write_text(f"HF_TOKEN={TOKENS['file']}")
    for number in range(24):
        lines = [" ".join(draw.choices(WORDS, k=40)) for _ in range(10)]
        (folder / "text" / f"book_{number:02}.txt").write_text("\n\n".join(lines))
    path = folder / "mine.toml"
    path.write_text(recipe)
    return path


def spellings(token: str) -> Iterator[bytes]:
    """Yield how a token may stand in a file."""
    yield token.encode()
    yield token.encode("utf-16-le")
    for skipped in range(3):  # base64 of it inside of something longer
        yield base64.b64encode(b"\0" * skipped + token.encode())[4:-4]


def leaks(contents: Mapping[str, bytes]) -> list[str]:
    """Return which token stands in which content."""
    return [
        f"{name} in {place}"
        for place, content in contents.items()
        for name, token in TOKENS.items()
        if any(spelling in content for spelling in spellings(token))
    ]


def test_the_search_finds_a_token_that_is_there() -> None:
    token = TOKENS["HF_TOKEN"].encode()
    hidden = {"plain": b"x" + token, "coded": base64.b64encode(b"ab" + token), "none": b"hf_"}
    assert leaks(hidden) == ["HF_TOKEN in plain", "HF_TOKEN in coded"]


@pytest.mark.parametrize(
    ("flow", "recipe", "stages"),
    [
        ("prepare", RECIPE, {"sources", "table", "remap", "pack"}),
        pytest.param(
            "run", RECIPE + TRAINING, {"pack", "proof", "flat", "report"}, marks=pytest.mark.slow
        ),
    ],
)
def test_nothing_that_a_run_leaves_holds_a_token(
    flow: str, recipe: str, stages: set[str], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    code, output = run(tmp_path, flow, str(make_data(tmp_path, recipe)), "--store", str(store))
    assert code == 0, output
    files = {str(p.relative_to(store)): p for p in store.rglob("*") if p.is_file()}
    assert stages <= {p.parent.parent.name for p in files.values() if p.name == "receipt.json"}
    contents = {name: path.read_bytes() for name, path in files.items()}
    assert "prefect/prefect.db" in files
    with closing(sqlite3.connect(files["prefect/prefect.db"])) as database:
        (logs,) = database.execute("SELECT count(*) FROM log").fetchone()
        (artifacts,) = database.execute("SELECT count(*) FROM artifact").fetchone()
    assert logs > 0, "nothing was logged: the search would prove little"
    assert artifacts > 0
    assert leaks({**contents, "output": output.encode()}) == []


def test_a_token_in_a_field_of_a_recipe_is_not_shown_by_the_refusal(tmp_path: Path) -> None:
    for number, wrong in enumerate(("proof.train.hours", "publish.token", "sources.inputs")):
        recipe = RECIPE.split("[sources]", maxsplit=1)[0] + f'{wrong} = "{TOKENS["recipe"]}"\n'
        path = tmp_path / f"wrong_{number}.toml"
        path.write_text(recipe)
        with pytest.raises(ConfigError, match=path.name) as error:
            load(str(path))
        assert leaks({wrong: str(error.value).encode()}) == []


def test_a_child_that_prints_its_environment_gives_no_token_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKENS["HF_TOKEN"])
    lines: list[str] = []
    run_child([sys.executable, "-c", "import os; print(dict(os.environ))"], lines.append)
    assert "HF_TOKEN" in "".join(lines)
    assert leaks({"lines": "".join(lines).encode()}) == []
