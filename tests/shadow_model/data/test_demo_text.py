"""The embedded text: docstrings of installed packages, found without importing them."""

import subprocess
import sys
from itertools import islice

import numpy as np
import pytest

from shadow_model.data.demo_text import demo_texts, package_record
from shadow_model.errors import ConfigError

GENERIC = "networkx.algorithms.shortest_paths.generic.shortest_path"


@pytest.fixture(scope="module")
def by_title() -> dict[str, str]:
    """The documents of networkx by their names, without arguments."""
    texts = demo_texts(["networkx"])
    return {text.partition("\n\n")[0].partition("(")[0]: text for text in texts}


def test_documents_are_named_docstrings_without_indentation(by_title: dict[str, str]) -> None:
    title, _, body = by_title[GENERIC].partition("\n\n")
    assert title.startswith(f"{GENERIC}(G, source=None, target=None, weight=None")
    assert body.startswith("Compute shortest paths in the graph.\n\nParameters\n----------\nG : ")
    assert body.endswith("\n")


def test_prompts_are_gone_but_code_and_output_stay(by_title: dict[str, str]) -> None:
    lines = [line.lstrip() for text in by_title.values() for line in text.splitlines()]
    assert not any(line.startswith(">>>") for line in lines)
    assert "\nG = nx.path_graph(5)\n" in by_title[GENERIC]


def test_the_order_never_changes_and_mixes_packages() -> None:
    packages = ("networkx", "scikit-image")
    texts = list(islice(demo_texts(packages), 400))
    assert texts == list(islice(demo_texts(tuple(reversed(packages))), 400))
    first = [text.split(".")[0].split("(")[0] for text in texts]
    assert {"networkx", "skimage"} <= {name.strip() for name in first}


def test_nothing_is_imported() -> None:
    code = (
        "import sys\n"
        "from shadow_model.data.demo_text import demo_texts\n"
        "next(demo_texts(['networkx']))\n"
        "sys.exit('networkx' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_package_is_recorded_by_version_and_content() -> None:
    record = package_record("numpy")
    assert record.name == f"numpy {np.__version__}"
    assert len(record.sha256) == 64
    assert record.bytes > 1_000_000
    assert record == package_record("numpy")
    assert record.sha256 != package_record("networkx").sha256


def test_an_absent_package_is_refused() -> None:
    with pytest.raises(ConfigError, match="no-such-package"):
        list(demo_texts(["no-such-package"]))
    with pytest.raises(ConfigError, match="no-such-package"):
        package_record("no-such-package")
