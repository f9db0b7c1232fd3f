"""A fingerprint changes with the code that a stage depends on, and with nothing else."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shadow_model import fingerprint
from shadow_model.fingerprint import code_fingerprint

STAGE = '''
"""A stage."""
from typing import TYPE_CHECKING

import numpy as np

from toyparty.helpers.maths import add
from . import constants

if TYPE_CHECKING:
    from toyparty.heavy import Heavy
else:
    from toyparty import fallback


def run(x: "Heavy") -> float:
    """Run."""
    return add(x, constants.ONE)
'''
FILES = {
    "__init__.py": "",
    "stage.py": STAGE,
    "constants.py": "ONE = 1\n",
    "fallback.py": "NAME = 'fallback'\n",
    "heavy.py": "raise RuntimeError('never imported')\n",
    "unrelated.py": "X = 1\n",
    "helpers/__init__.py": "",
    "helpers/maths.py": "from .deep import twice\n\n\ndef add(a, b):\n    return a + b\n",
    "helpers/deep.py": "import os\n\n\ndef twice(a):\n    return 2 * a\n",
    "pages/__init__.py": "",
    "pages/page.py": "X = 1\n",
    "pages/page.html": "<p>",
    "pages/notes.txt": "free",
}
Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Lay out a first-party package `toyparty`; return a function that rewrites its files."""
    stamps_ns = itertools.count(10**18, 10**9)  # edits within one clock tick must still be seen

    def write_file(name: str, text: str) -> None:
        path = tmp_path / "toyparty" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        stamp_ns = next(stamps_ns)
        os.utime(path, ns=(stamp_ns, stamp_ns))

    for name, text in FILES.items():
        write_file(name, text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(fingerprint, "FIRST_PARTY", ("toyparty",))
    return write_file


def test_closure_is_followed_to_the_end_without_type_checking_imports(write: Write) -> None:
    del write
    found = code_fingerprint(["toyparty.stage"])
    assert list(found) == [
        "toyparty",
        "toyparty.constants",
        "toyparty.fallback",
        "toyparty.helpers.deep",
        "toyparty.helpers.maths",
        "toyparty.stage",
    ]
    assert all(len(digest) == 64 for digest in found.values())


def test_nothing_is_imported(write: Write) -> None:
    del write
    code_fingerprint(["toyparty.stage"])
    assert "toyparty" not in sys.modules


@pytest.mark.parametrize(
    "text",
    [
        STAGE.replace('"""A stage."""', '"""A stage, told better."""'),
        STAGE.replace('    """Run."""\n', ""),
        STAGE.replace("    return", "    # because\n\n    return"),
        STAGE.replace("add(x, constants.ONE)", "add(\n        x,\n        constants.ONE,\n    )"),
    ],
)
def test_comments_docstrings_and_formatting_do_not_count(write: Write, text: str) -> None:
    before = code_fingerprint(["toyparty.stage"])
    write("stage.py", text)
    assert text != STAGE
    assert code_fingerprint(["toyparty.stage"]) == before


@pytest.mark.parametrize(
    ("name", "text", "changed"),
    [
        ("stage.py", STAGE.replace("return add", "return -add"), "toyparty.stage"),
        ("constants.py", "ONE = 2\n", "toyparty.constants"),
        ("fallback.py", "NAME = 'other'\n", "toyparty.fallback"),
        ("helpers/maths.py", FILES["helpers/maths.py"].replace("+", "-"), "toyparty.helpers.maths"),
        ("helpers/deep.py", FILES["helpers/deep.py"].replace("2", "3"), "toyparty.helpers.deep"),
    ],
)
def test_change_in_a_called_module_counts(write: Write, name: str, text: str, changed: str) -> None:
    before = code_fingerprint(["toyparty.stage"])
    write(name, text)
    after = code_fingerprint(["toyparty.stage"])
    assert {module for module in before if before[module] != after[module]} == {changed}


@pytest.mark.parametrize("name", ["unrelated.py", "heavy.py"])
def test_change_elsewhere_does_not_count(write: Write, name: str) -> None:
    before = code_fingerprint(["toyparty.stage"])
    write(name, "X = 2\n")
    assert code_fingerprint(["toyparty.stage"]) == before


def test_templates_beside_a_module_count_and_notes_do_not(write: Write) -> None:
    before = code_fingerprint(["toyparty.pages.page"])
    assert set(before) == {"toyparty.pages.page", "pages/page.html"}
    write("pages/notes.txt", "changed")
    assert code_fingerprint(["toyparty.pages.page"]) == before
    write("pages/page.html", "<div>")
    assert code_fingerprint(["toyparty.pages.page"]) != before


def test_misspelt_stage_module_is_no_empty_fingerprint(write: Write) -> None:
    del write
    with pytest.raises(AssertionError, match="stgae"):
        code_fingerprint(["toyparty.stgae"])


def test_modules_that_cannot_change_results_are_left_out() -> None:
    found = code_fingerprint(["shadow_model.table.store"])
    assert "shadow_model.table.layout" in found
    assert "shadow_model.schema" in found
    assert not {"shadow_model.errors", "shadow_model.store", "shadow_model.receipt"} & set(found)


def test_fingerprint_is_the_same_in_another_process_and_folder(tmp_path: Path) -> None:
    code = (
        "from shadow_model.fingerprint import code_fingerprint as f; "
        "print(f(['shadow_model.table.store']))"
    )
    root = str(Path(fingerprint.__file__).parents[1])
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": root},
    )
    assert run.stdout.strip() == str(code_fingerprint(["shadow_model.table.store"]))
