"""A digest of the code that a stage depends on.

Covered: the module's own first-party imports, found statically and followed to the end, without
comments, docstrings and formatting; templates and styles that lie beside a module. Nothing is
imported to find out. Not covered: imports by computed name, names taken from the package's lazy
API (our modules import from where a name lives), third-party code (its versions stand in the
receipt), and the modules of `CANNOT_CHANGE_RESULTS`.
"""

import ast
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from shadow_model.digest import sha256_file, sha256_text
from shadow_model.syntax import parse_source

FIRST_PARTY = ("shadow_model", "tasks", "flows")
TOP_LEVEL = "(top level)"
RESOURCE_SUFFIXES = frozenset({".css", ".html", ".js"})
CANNOT_CHANGE_RESULTS = frozenset(
    {
        "shadow_model",
        "shadow_model.code_notes",
        "shadow_model.digest",
        "shadow_model.disk",
        "shadow_model.errors",
        "shadow_model.fingerprint",
        "shadow_model.hub.card",
        "shadow_model.hub.checkpoints",
        "shadow_model.hub.config",
        "shadow_model.hub.pusher",
        "shadow_model.hub.repository",
        "shadow_model.locking",
        "shadow_model.progress",
        "shadow_model.receipt",
        "shadow_model.redaction",
        "shadow_model.report.live",
        "shadow_model.store",
        "shadow_model.syntax",
        "shadow_model.train.events",
        "shadow_model.transient",
        "tasks",
        "tasks.artifacts",
        "tasks.caching",
        "tasks.chain",
        "tasks.child",
        "tasks.device",
        "tasks.environment",  # what it finds is part of the identity by itself
        "tasks.locks",
        "tasks.memory",
        "tasks.progress",
        "tasks.pushing",
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
        seen[name], imports, _parts = _read_module(name, path, path.stat().st_mtime_ns)
        seen |= _resources(path.parent)
        todo += imports
    return dict(sorted(seen.items()))


def module_parts(name: str, digest: str) -> dict[str, str]:
    """Return {function, method or class: digest} of a module; empty unless it still has `digest`.

    A change of a module can so be named by the function that changed.
    """
    if (path := _source_path(name)) is None:
        return {}
    found, _imports, parts = _read_module(name, path, path.stat().st_mtime_ns)
    return dict(parts) if found == digest else {}


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
def _read_module(
    name: str, path: Path, _mtime_ns: int
) -> tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]:
    tree = parse_source(path.read_text(encoding="utf-8"))
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    imports = tuple(_imports(tree, package))
    digest = sha256_text(ast.dump(_without_docstrings(tree)))
    return digest, imports, tuple(_parts(tree.body).items())


def _parts(body: Sequence[ast.stmt], within: str = "") -> dict[str, str]:
    """Return the digest of each function, of each class without its methods, and of the rest."""
    parts, rest = dict[str, str](), list[str]()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{within}{node.name}"
            parts[name] = sha256_text(parts.get(name, "") + ast.dump(node))  # overloads
        elif isinstance(node, ast.ClassDef):
            parts |= _parts(node.body, f"{within}{node.name}.")
            head = [*node.decorator_list, *node.bases, *node.keywords]
            rest += [f"{node.name} {ast.dump(part)}" for part in head]
        else:
            rest.append(ast.dump(node))
    parts[within.removesuffix(".") or TOP_LEVEL] = sha256_text("\n".join(rest))
    return parts


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
