"""The embedded text: the documentation inside installed packages, one docstring a document.

Nothing is imported and nothing is fetched: the packages' own file lists name their modules, which
are parsed. A document is the object's full name with its arguments, and its docstring without
indentation and without doctest prompts. Files come in the order of a digest of their names, so
that any part of the stream mixes the packages, while documents of one file stay together.
"""

import ast
import importlib.metadata
import inspect
import logging
import warnings
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib.metadata import Distribution, PackagePath
from pathlib import Path

from shadow_model.digest import sha256_text
from shadow_model.errors import ConfigError
from shadow_model.receipt import FileRecord
from shadow_model.syntax import parse_source

DEMO_TEXT_PACKAGES = ("matplotlib", "networkx", "numpy", "scikit-image", "scipy")
MIN_DOCUMENT_CHARS = 64
_LEFT_OUT_FOLDERS = frozenset({"tests"})
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_log = logging.getLogger(__name__)


def demo_texts(packages: Sequence[str] = DEMO_TEXT_PACKAGES) -> Iterator[str]:
    """Yield the documentation of installed packages, in an order that does not depend on where.

    Args:
        packages: Names of distributions; versions are whatever is installed.

    Raises:
        ConfigError: A package is not installed, or without a list of its files.
    """
    files = [path for name in packages for path in _modules(name)]
    for path in sorted(files, key=lambda p: sha256(p.as_posix().encode()).digest()):
        yield from _file_texts(path)


def package_record(package: str) -> FileRecord:
    """Return a package's version, and one digest and size of all files it has installed.

    Files outside of the package, such as scripts with the environment's path in them, do not count:
    the same version in another folder gives the same record.

    Raises:
        ConfigError: It is not installed, or without a list of its files.
    """
    files = sorted(
        (path.as_posix(), path.hash.value, path.size or 0)
        for path in _files(package)
        if path.hash is not None and not _outside(path)
    )
    name = f"{package} {importlib.metadata.version(package)}"
    digest = sha256_text("\n".join(f"{path} {value}" for path, value, _ in files))
    return FileRecord(name=name, sha256=digest, bytes=sum(size for _, _, size in files))


def _files(package: str) -> list[PackagePath]:
    fix = "Install the extra demo, or name other packages."
    try:
        files = Distribution.from_name(package).files
    except importlib.metadata.PackageNotFoundError as error:
        raise ConfigError(package, "be installed", "no such package", fix) from error
    if not files:
        raise ConfigError(package, "be installed with a list of its files", "none", fix)
    return files


def _modules(package: str) -> list[PackagePath]:
    return [
        path
        for path in _files(package)
        if path.suffix == ".py" and not _outside(path) and not _LEFT_OUT_FOLDERS & {*path.parts}
    ]


def _outside(path: PackagePath) -> bool:
    return path.parts[0] == ".." or path.parts[0].endswith((".dist-info", ".data"))


def _file_texts(path: PackagePath) -> Iterator[str]:
    source = Path(str(path.locate())).read_text(encoding="utf-8")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of invalid escapes in their strings
            tree = parse_source(source)
    except SyntaxError:
        _log.warning("%s is no Python of this version; left out", path)
        return
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    for name, docstring in _docstrings(tree, module):
        body = _without_prompts(inspect.cleandoc(docstring)).strip()
        if len(body) >= MIN_DOCUMENT_CHARS:
            yield f"{name}\n\n{body}\n"


def _docstrings(node: _Documented, name: str) -> Iterator[tuple[str, str]]:
    """Yield (name with arguments, raw docstring) of a node and of all it defines."""
    docstring = ast.get_docstring(node, clean=False)
    if docstring:
        yield name + _arguments(node), docstring
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstrings(child, f"{name}.{child.name}")


def _arguments(node: _Documented) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return f"({ast.unparse(node.args)})"
    return ""


def _without_prompts(docstring: str) -> str:
    lines, inside = [], False
    for line in docstring.split("\n"):
        body = line.lstrip(" ")
        indent = line[: len(line) - len(body)]
        inside = body.startswith(">>>") or (inside and body.startswith("..."))
        lines.append(indent + body[3:].removeprefix(" ") if inside else line.rstrip())
    return "\n".join(lines)
