"""Python source as a syntax tree, from any thread.

CPython 3.11 counts the depth of the tree that it builds once for all threads: where a garbage
collection lets another thread in, both fail ("AST constructor recursion depth mismatch").
"""

import ast
import threading

_ONE_AT_A_TIME = threading.Lock()


def parse_source(source: str) -> ast.Module:
    """Return the syntax tree of a module's source.

    Raises:
        SyntaxError: It is no Python of this version.
    """
    with _ONE_AT_A_TIME:
        return ast.parse(source)
