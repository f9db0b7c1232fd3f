"""Imports point downwards only: flows -> tasks -> shadow_model, and in it from train to table."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = (
    ("flows",),
    ("tasks",),
    ("shadow_model.recipes", "shadow_model.config"),
    (
        "shadow_model.smoke",
        "shadow_model.speed",
        "shadow_model.report",
        "shadow_model.generate",
        "shadow_model.export",
        "shadow_model.hub",
    ),
    ("shadow_model.train",),
    ("shadow_model.slab",),
    ("shadow_model.nn",),
    ("shadow_model.data",),
    ("shadow_model.table",),
)
FILES = sorted(
    path for folder in ("flows", "tasks", "shadow_model") for path in (ROOT / folder).rglob("*.py")
)


def module_name(path: Path) -> str:
    """Return the dotted name of a file of the project."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported_names(path: Path) -> Iterator[str]:
    """Yield what a file imports when it runs, wherever the statement stands."""
    for node in _runtime_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from _runtime_nodes(node)


def layer(name: str) -> int | None:
    """Return the layer of a module, 0 the highest; None for those that all may use."""
    for number, prefixes in enumerate(LAYERS):
        if any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes):
            return number
    return None


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_point_downwards(path: Path) -> None:
    own = layer(module_name(path))
    for name in imported_names(path):
        theirs = layer(name)
        if own is None or theirs is None:
            assert own is not None or theirs is None, f"{module_name(path)} imports {name}"
        else:
            assert own <= theirs, f"{module_name(path)} imports {name}, which stands above it"


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_stand_at_the_top(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = [
        node.lineno
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not inside, f"{path}: imports inside of functions, at lines {inside}"


@pytest.mark.parametrize("folder", ["table", "data"])
def test_tables_and_data_are_numpy_only(folder: str) -> None:
    for path in (ROOT / "shadow_model" / folder).glob("*.py"):
        roots = {name.partition(".")[0] for name in imported_names(path)}
        assert "torch" not in roots, f"{path} imports torch"


def test_library_loads_where_prefect_cannot() -> None:
    names = [module_name(p) for p in FILES if p.is_relative_to(ROOT / "shadow_model")]
    script = (
        "import importlib, sys\n"
        "sys.modules['prefect'] = None\n"  # importing it raises ModuleNotFoundError
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(sum(m.startswith('shadow_model') for m in sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) == len(names)
