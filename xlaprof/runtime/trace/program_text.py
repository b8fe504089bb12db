"""The program's source files as syntax trees. Read only after a compilation, or when tensors accumulate."""

from __future__ import annotations

import ast
import linecache
from contextlib import suppress

_LONGEST = 20_000  # lines of a file that is parsed
_REMEMBERED = 16

_trees: dict[str, tuple[list[str], ast.Module | None]] = {}


def parsed(file: str) -> ast.Module | None:
    """The syntax tree of a file; ``None`` where its text is not available, or is not Python."""
    lines = linecache.getlines(file)
    known = _trees.get(file)
    if known is not None and known[0] is lines:
        return known[1]
    tree = None
    if 0 < len(lines) <= _LONGEST:
        with suppress(SyntaxError, ValueError, RecursionError):  # not Python, or not this version's
            tree = ast.parse("".join(lines))
    if len(_trees) >= _REMEMBERED:
        _trees.clear()
    _trees[file] = lines, tree
    return tree
