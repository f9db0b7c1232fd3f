"""A first-party package on disk that toy stages call, so that its code can be edited."""

import itertools
import os
from collections.abc import Callable

import pytest

from shadow_model import fingerprint

EditCode = Callable[[str, str], None]
STAGE = """
from toycode.helper import twice


def run(x):
    return twice(x)
"""
HELPER = """
def twice(x):
    return 2 * x


def unused(x):
    return x
"""
CODE_FILES = {
    "__init__.py": "",
    "stage.py": STAGE,
    "helper.py": HELPER,
    "elsewhere.py": "X = 1\n",
}


@pytest.fixture
def edit_code(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> EditCode:
    """Lay out the package `toycode`; return a function that rewrites one of its files."""
    folder = tmp_path_factory.mktemp("code") / "toycode"
    folder.mkdir()
    stamps_ns = itertools.count(10**18, 10**9)

    def edit(name: str, text: str) -> None:
        (folder / name).write_text(text)
        os.utime(folder / name, ns=(next(stamps_ns),) * 2)

    for name, text in CODE_FILES.items():
        edit(name, text)
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.setattr(fingerprint, "FIRST_PARTY", (*fingerprint.FIRST_PARTY, "toycode"))
    return edit
