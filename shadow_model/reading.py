"""Files that others wrote: what a parser raises on them becomes an error that a user can act on.

JSON and TOML are bounded in size and depth, and their numbers are finite: a file of brackets must
not exhaust the stack, here or where its values are printed later.
"""

import csv
import json
import math
import pickle
import struct
import tomllib
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shadow_model.errors import ShadowError
from shadow_model.transient import is_transient

MAX_TEXT_BYTES = 1 << 28
"""Of a JSON or TOML file; ours stay far below it."""
MAX_DEPTH = 64
DAMAGE: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    csv.Error,
    pickle.PickleError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""What parsers raise on bytes that are not what they should be: none keeps to one class."""


@contextmanager
def reading(
    kind: type[ShadowError], where: object, must: str, fix: str, *more: type[Exception]
) -> Iterator[None]:
    """Turn what a parser raises inside the block into an error of ours.

    Our own errors and transient faults of the machine pass as they are. Put the parsing inside and
    nothing else: a mistake of ours there would be taken for the file's.

    Args:
        kind: Class of the error.
        more: Exceptions of the parser that are not among `DAMAGE`.
    """
    try:
        yield
    except (*DAMAGE, *more) as error:
        machine = isinstance(error, OSError) and not isinstance(error, more)
        if machine and is_transient(error):
            raise
        raise kind(where, must, reason(error), fix) from error


def reason(error: BaseException) -> str:
    """Return what an exception says, or its name where it says nothing."""
    if isinstance(error, MemoryError):
        return "something that needs more memory than there is"
    return str(error).strip() or type(error).__name__


def load_json(path: Path, strict: bool = True) -> Any:
    """Return the value of a JSON file.

    Args:
        strict: False: numbers that are none become null instead of an error.

    Raises:
        OSError: It cannot be read.
        ValueError: It is too large, no JSON in UTF-8, too deep, or holds a number that is none.
    """
    return parse_json(read_bounded(path, MAX_TEXT_BYTES), strict)


def parse_json(content: bytes | str, strict: bool = True) -> Any:
    """Return the value of a JSON text; ValueError as `load_json`."""
    text = content.decode("utf-8") if isinstance(content, bytes) else content
    parse_float = _finite if strict else _finite_or_none
    try:
        value = json.loads(text, parse_constant=parse_float, parse_float=parse_float)
    except RecursionError as error:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels") from error
    check_depth(value)
    return value


def parse_toml(content: bytes) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raises:
        ValueError: It is no TOML in UTF-8, or too deep.
    """
    try:
        value = tomllib.loads(content.decode("utf-8"))
    except RecursionError as error:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels") from error
    check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Raise ValueError where lists and mappings stand inside one another more than 64 deep."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        level = inner
        if not level:
            return
    raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """Return a file's bytes; ValueError where there are more than `max_bytes`."""
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"it holds more than {max_bytes:,} bytes")
    return content


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is no finite number")
    return value


def _finite_or_none(text: str) -> float | None:
    return value if math.isfinite(value := float(text)) else None
