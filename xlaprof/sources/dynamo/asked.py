"""Whether Python asks, at a line of a function or behind it, for what the values of a tensor decide there; and whether
it asks there to go on with a loop.

A graph can hold a tensor whose size only its values tell, or a number that they tell, as long as nothing branches,
loops or counts by that. It can hold both ways of a branch, in a loop too, and not a loop that a tensor ends.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

_SIZES = frozenset({"shape", "size", "numel", "len"})
_READS = frozenset({"item", "tolist", "int", "bool", "float", "range"})
_HEADS = ast.If | ast.While | ast.For | ast.Assert
_ASSIGNS = ast.Assign | ast.AnnAssign | ast.NamedExpr


@lru_cache(maxsize=64)
def asking(file: str, line: int) -> int:
    """The first line that asks, in the function around ``line``; 0: none does, or the text is not there."""
    kept: set[str] = set()
    around = _function(file, line)
    walked = ast.walk(around) if around is not None else ()
    parts = (one for one in walked if isinstance(one, ast.expr | ast.stmt) and _ends(one) >= line)
    for one in sorted(parts, key=lambda one: one.lineno):
        if one.lineno >= line and any(_names(part) & kept for part in _asked(one)):
            return one.lineno
        if one.lineno == line and isinstance(one, _HEADS):  # what is computed is in the head
            return line
        if isinstance(one, _ASSIGNS) and one.value is not None and (one.lineno <= line or _is_size(one.value, kept)):
            kept |= {name for target in _targets(one) for name in _names(target)}
    return 0


@lru_cache(maxsize=64)
def ends_a_loop(file: str, line: int) -> bool:
    """Whether a condition at the line decides if a loop goes on: of a ``while``, or of a way to ``break`` or return."""
    around = _function(file, line)
    for loop in ast.walk(around) if around is not None else ():
        if isinstance(loop, ast.While) and loop.lineno <= line <= _ends(loop.test):
            return True
        if isinstance(loop, ast.While | ast.For) and any(_leaves(one, line) for one in _turn(loop.body)):
            return True
    return False


@lru_cache(maxsize=64)
def using(file: str, line: int, expression: str) -> int:
    """The first line, in the function around ``line``, that uses what the expression reads of an object
    (``self.clip`` of ``(1.0 + self.clip)``); 0: none does, or the text is not there."""
    paths = set(re.findall(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+", expression))
    around = _function(file, line) if paths else None
    walked = ast.walk(around) if around is not None else ()
    reads = (one for one in walked if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load))
    return min((one.lineno for one in reads if ast.unparse(one) in paths), default=0)


def _leaves(node: ast.AST, line: int) -> bool:
    """Whether the node is an ``if`` that asks at the line, and one of its ways leaves the loop."""
    if not isinstance(node, ast.If) or not node.lineno <= line <= _ends(node.test):
        return False
    return any(isinstance(one, ast.Break | ast.Return) for one in _turn([*node.body, *node.orelse]))


def _turn(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes and what is in them, but for the turns of a further loop: a ``break`` there leaves that one alone."""
    for one in nodes:
        yield one
        if not isinstance(one, ast.While | ast.For | ast.FunctionDef | ast.ClassDef):
            yield from _turn(ast.iter_child_nodes(one))


@lru_cache(maxsize=8)
def _function(file: str, line: int) -> ast.AST | None:
    """The innermost function around the line; None: there is none, or the text is not there."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return None
    functions = (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    return next(reversed([one for one in functions if one.lineno <= line <= _ends(one)]), None)


def _ends(node: ast.expr | ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _names(tree: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}


def _targets(one: _ASSIGNS) -> list[ast.expr]:
    return one.targets if isinstance(one, ast.Assign) else [one.target]


def _is_size(value: ast.expr, kept: set[str]) -> bool:
    return bool(_names(value) & kept) and any(_called(one) in _SIZES for one in ast.walk(value))


def _called(node: ast.AST) -> str:
    """The name of a function that is called, or of an attribute."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _asked(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions of which Python must know the value."""
    match node:
        case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
            yield node.test
        case ast.For():
            yield node.iter
        case ast.Call() if _called(node) in _READS or _called(node.func) in _READS:
            yield node
