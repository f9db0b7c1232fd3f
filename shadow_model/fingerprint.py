"""A digest of the code that a stage depends on.

Covered: the module's own first-party imports, found statically and followed to the end, without
comments, docstrings and formatting; templates and styles that lie beside a module. Nothing is
imported to find out. Not covered: imports by computed name, names taken from the package's lazy
API (our modules import from where a name lives), third-party code (its versions stand in the
receipt), and the modules of `CANNOT_CHANGE_RESULTS`.
"""

import ast
import importlib.util
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from shadow_model.digest import sha256_file, sha256_text

FIRST_PARTY = ("shadow_model", "tasks", "flows")
RESOURCE_SUFFIXES = frozenset({".css", ".html", ".js"})
CANNOT_CHANGE_RESULTS = frozenset(
    {
        "shadow_model",
        "shadow_model.digest",
        "shadow_model.errors",
        "shadow_model.fingerprint",
        "shadow_model.progress",
        "shadow_model.receipt",
        "shadow_model.store",
        "tasks",
        "tasks.artifacts",
        "tasks.caching",
        "tasks.chain",
        "tasks.child",
        "tasks.environment",  # what it finds is part of the identity by itself
        "tasks.locks",
        "tasks.progress",
        "tasks.stage",
    }
)


def code_fingerprint(modules: Iterable[str]) -> dict[str, str]:
    """Return {module: sha256 of its code} for the first-party import closure of `modules`.

    Templates and styles beside a covered module stand there as {folder/file name: sha256}.
    """
    todo, seen = list(modules), dict[str, str]()
    absent = [name for name in todo if _source_path(name) is None]
    assert not absent, f"no first-party modules: {absent}"  # else their code would not count
    while todo:
        name = todo.pop()
        path = _source_path(name)
        if path is None or name in seen or name in CANNOT_CHANGE_RESULTS:
            continue
        seen[name], imports = _read_module(name, path, path.stat().st_mtime_ns)
        seen |= _resources(path.parent)
        todo += imports
    return dict(sorted(seen.items()))


def _source_path(name: str) -> Path | None:
    top, *below = name.split(".")
    spec = importlib.util.find_spec(top) if top in FIRST_PARTY else None
    if spec is None or spec.origin is None:
        return None
    base = Path(spec.origin).parent.joinpath(*below)  # spec of a submodule would import its parents
    candidates = (base / "__init__.py", base.with_name(f"{base.name}.py"))
    return next((path for path in candidates if path.is_file()), None)


def _resources(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.iterdir() if path.suffix in RESOURCE_SUFFIXES]
    return {f"{folder.name}/{path.name}": sha256_file(path) for path in paths}


@lru_cache(maxsize=1024)
def _read_module(name: str, path: Path, _mtime_ns: int) -> tuple[str, tuple[str, ...]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    imports = tuple(_imports(tree, package))
    return sha256_text(ast.dump(_without_docstrings(tree))), imports


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in _runtime_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*parent, node.module or ""]).strip(".") if node.level else node.module
            yield base or ""
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and _is_type_checking(node.test):
            yield from node.orelse
            yield from (inner for other in node.orelse for inner in _runtime_nodes(other))
            continue
        yield node
        yield from _runtime_nodes(node)


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return name == "TYPE_CHECKING"


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        node.body = [n for n in node.body if not _is_string(n)] or [ast.Pass()]
    return tree


def _is_string(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
