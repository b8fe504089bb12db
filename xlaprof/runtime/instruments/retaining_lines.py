"""The lines of the program's text that put something into a container, by the name it has there."""

from __future__ import annotations

import ast
import linecache
from typing import TYPE_CHECKING, NamedTuple

from xlaprof.recording.stacks import RawFrame

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PUT = frozenset({"append", "appendleft", "extend", "extendleft", "insert", "add", "update", "setdefault", "push"})
_LONGEST = 20_000  # lines of a file that is read
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


class _Put(NamedTuple):
    line: int
    scopes: tuple[str, ...]  # names of classes and functions around it
    again: bool  # in a function, or in a loop


def lines_that_put(name: str, owner: str, files: Iterable[str]) -> tuple[RawFrame, ...]:
    """Where something is put into the variable, or into the attribute of an object of class ``owner``, ``name``.

    Of the first file that has any: those in a loop or a function before those that run once, those of the class's own
    methods before others.
    """
    for file in files:
        found = [one for one in _puts(file, name, attribute=bool(owner)) if one.line]
        if not found:
            continue
        own = owner.rpartition(".")[2]
        for wanted in (
            [one for one in found if own in one.scopes[:-1]],
            [one for one in found if one.again],
            found,
        ):
            if wanted:
                return tuple(RawFrame(file, one.line, ".".join(one.scopes) or "<module>") for one in wanted)
    return ()


def _puts(file: str, name: str, *, attribute: bool) -> Iterator[_Put]:
    lines = linecache.getlines(file)
    if not 0 < len(lines) <= _LONGEST:
        return
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):  # changed since it was imported
        return
    todo: list[tuple[ast.AST, tuple[str, ...], bool]] = [(tree, (), False)]
    seen: set[int] = set()
    while todo:
        node, scopes, again = todo.pop(0)
        container = _put_into(node)
        if container is not None and _is_named(container, name, attribute=attribute):
            line: int = getattr(node, "lineno", 0)
            if line not in seen:
                seen.add(line)
                yield _Put(line, scopes, again)
        if isinstance(node, _SCOPES):
            scopes = (*scopes, getattr(node, "name", "<lambda>"))
            again = again or not isinstance(node, ast.ClassDef)
        again = again or isinstance(node, _LOOPS)
        todo += [(child, scopes, again) for child in ast.iter_child_nodes(node)]


def _put_into(node: ast.AST) -> ast.expr | None:
    """The container that the statement or call puts something into."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PUT:
        return node.func.value
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                return target.value
        if isinstance(node.value, (ast.BinOp, ast.List)) and len(node.targets) == 1:  # xs = xs + [x], xs = [*xs, x]
            target = node.targets[0]
            same = {ast.unparse(one) for one in ast.walk(node.value) if isinstance(one, (ast.Name, ast.Attribute))}
            return target if ast.unparse(target) in same else None
    if isinstance(node, ast.AugAssign):
        return node.target.value if isinstance(node.target, ast.Subscript) else node.target
    return None


def _is_named(container: ast.expr, name: str, *, attribute: bool) -> bool:
    while isinstance(
        container, (ast.Subscript, ast.Call)
    ):  # logs["loss"].append(x), logs.setdefault("loss", []).append(x)
        if isinstance(container, ast.Subscript):
            container = container.value
        elif isinstance(container.func, ast.Attribute):
            container = container.func.value
        else:
            return False
    if attribute:
        return isinstance(container, ast.Attribute) and container.attr == name
    return isinstance(container, ast.Name) and container.id == name
