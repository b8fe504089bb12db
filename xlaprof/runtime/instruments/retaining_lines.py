"""The lines of the program's text that put something into a container."""

from __future__ import annotations

import ast
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from xlaprof.recording.stacks import RawFrame
from xlaprof.runtime.trace.program_text import parsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: methods that put something into their container
_VERBS = frozenset(
    {"append", "appendleft", "extend", "extendleft", "insert", "add", "update", "setdefault", "push", "put"}
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


class _Put(NamedTuple):
    node: ast.stmt | ast.expr
    container: ast.expr
    scopes: tuple[str, ...]  # names of classes and functions around it
    repeats: bool  # in a function, or in a loop

    @property
    def line(self) -> int:
        return self.node.lineno


def retaining_lines(name: str, owner: str, files: Iterable[str]) -> tuple[RawFrame, ...]:
    """Where something is put into the variable ``name``, or into that attribute of an object of class ``owner``.

    From the first file that has any: lines of the class's own methods, else lines in a loop or a function, else all.
    """
    for file in files:
        by_line: dict[int, _Put] = {}
        for put in _puts(file):
            if _is_named(put.container, name, attribute=bool(owner)):
                by_line.setdefault(put.line, put)
        found, class_name = list(by_line.values()), owner.rpartition(".")[2]
        for chosen in (
            [put for put in found if class_name in put.scopes[:-1]],
            [put for put in found if put.repeats],
            found,
        ):
            if chosen:
                return tuple(RawFrame(file, put.line, ".".join(put.scopes) or "<module>") for put in chosen)
    return ()


def retaining_line(stack: tuple[RawFrame, ...], name: str) -> tuple[RawFrame, ...]:
    """The one line, in the files of the functions on ``stack``, that puts something into ``name``; empty unless one.

    Without a name: the one line in one of these functions that puts anything anywhere.
    """
    last = name.rpartition(".")[2]
    for frame in stack:
        tree = parsed(frame.file)
        if tree is None:
            continue
        if last:
            lines = {put.line for put in _puts(frame.file) if last in _last_names(put.container)}
        else:  # a sum (``total += loss``) is no container
            function = _function(tree, frame.line)
            puts = (put for put in _puts(frame.file) if not isinstance(put.node, ast.AugAssign))
            lines = {put.line for put in puts if _function(tree, put.line) is function}
        if len(lines) == 1:
            return (RawFrame(frame.file, lines.pop(), frame.func),)
    return ()


def _puts(file: str) -> Iterator[_Put]:
    tree = parsed(file)
    todo: deque[tuple[ast.AST, tuple[str, ...], bool]] = deque([(tree, (), False)] if tree is not None else ())
    while todo:
        node, scopes, repeats = todo.popleft()
        if isinstance(node, (ast.stmt, ast.expr)) and (container := _put_into(node)) is not None:
            yield _Put(node, container, scopes, repeats)
        if isinstance(node, _SCOPES):
            scopes = (*scopes, getattr(node, "name", "<lambda>"))
            repeats = repeats or not isinstance(node, ast.ClassDef)
        repeats = repeats or isinstance(node, _LOOPS)
        todo.extend((child, scopes, repeats) for child in ast.iter_child_nodes(node))


def _put_into(node: ast.AST) -> ast.expr | None:
    """The container that the statement or call adds to."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VERBS:
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


def _base(container: ast.expr) -> ast.expr | None:
    """The named container: ``logs`` of ``logs["loss"].append(x)`` and of ``logs.setdefault("loss", []).append(x)``."""
    while isinstance(container, (ast.Subscript, ast.Call)):
        if isinstance(container, ast.Subscript):
            container = container.value
        elif isinstance(container.func, ast.Attribute):
            container = container.func.value
        else:
            return None
    return container


def _is_named(container: ast.expr, name: str, *, attribute: bool) -> bool:
    base = _base(container)
    if attribute:
        return isinstance(base, ast.Attribute) and base.attr == name
    return isinstance(base, ast.Name) and base.id == name


def _last_names(container: ast.expr) -> tuple[str, ...]:
    base = _base(container)
    return (base.id,) if isinstance(base, ast.Name) else (base.attr,) if isinstance(base, ast.Attribute) else ()


def _function(tree: ast.Module, line: int) -> ast.AST:
    inner: ast.AST = tree
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS) and node.lineno <= line <= (node.end_lineno or 0):
            inner = node  # breadth first: the innermost comes last
    return inner
