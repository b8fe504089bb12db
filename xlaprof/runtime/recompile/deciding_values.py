"""A variable of the program whose value decides which operations PyTorch records at a line.

``F.cross_entropy(logits, y, label_smoothing=smoothing)`` records more of them for 0.1 than for 0.0, with no condition
in the program. The function around the line has mostly ended when its graph is compiled: what its arguments were is
read from a function that called it and still runs. An attribute of a module is found there, too: ``self.smoothing`` of
a forward is ``criterion.smoothing`` where ``criterion(logits, y)`` is called.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from xlaprof.recording.stacks import whole
from xlaprof.runtime.trace.program_text import parsed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xlaprof.recording.stacks import RawFrame

    Settings = Mapping[tuple[str, str], Mapping[str, str]]

_Function = (ast.FunctionDef, ast.AsyncFunctionDef)
_Variable = (ast.Name, ast.Attribute)


def changed(stack: tuple[RawFrame, ...], before: Settings, now: Settings) -> tuple[str, tuple[str, str]]:
    """The one variable on the line with another value than before, and both; empty where there are none, or more.

    ``before`` and ``now``: variables of the functions that ran when either graph was compiled.
    """
    frames = whole(stack)
    names, called = _names(frames[0]) if frames else ({}, ())
    for frame, caller in zip(frames, (*frames[1:], None), strict=True):
        scopes = (frame.file, frame.func), (frame.file, "<module>")
        found = [
            (names[name], (before[scope][name], value))
            for scope in scopes
            for name, value in now.get(scope, {}).items()
            if name in names and before.get(scope, {}).get(name, value) != value
        ]
        if frame is frames[0]:  # attributes of a library's module that the line calls
            found += [
                (name, (before[scope][name], value))
                for scope in scopes
                for name, value in now.get(scope, {}).items()
                if name not in names and name.startswith(called) and before.get(scope, {}).get(name, value) != value
            ]
        if found:
            return found[0] if len(found) == 1 else ("", ("", ""))
        if scopes[0] in now or caller is None:
            break
        names = _passed(frame, caller, names)
    return "", ("", "")


def _names(frame: RawFrame) -> tuple[dict[str, str], tuple[str, ...]]:
    """Variables and attributes on a line, by themselves; and what it calls, each with a dot behind it."""
    tree = parsed(frame.file)
    nodes = ast.walk(tree) if tree is not None else ()
    statements = [
        one for one in nodes if isinstance(one, ast.stmt) and one.lineno <= frame.line <= (one.end_lineno or 0)
    ]
    innermost = max(statements, key=lambda one: one.lineno, default=None)
    inside = list(ast.walk(innermost)) if innermost is not None else []
    read = [one for one in inside if isinstance(one, _Variable) and isinstance(one.ctx, ast.Load)]
    called = tuple(f"{ast.unparse(one.func)}." for one in inside if isinstance(one, ast.Call))
    return {text: text for text in map(ast.unparse, read)}, called


def _passed(frame: RawFrame, caller: RawFrame, names: Mapping[str, str]) -> dict[str, str]:
    """Variables of the caller that are arguments of ``frame``'s function, and the names there of those in ``names``."""
    trees = parsed(frame.file), parsed(caller.file)
    name = frame.func.rpartition(".")[2]
    functions = (
        [one for one in ast.walk(trees[0]) if isinstance(one, _Function) and one.name == name] if trees[0] else []
    )
    functions = [one for one in functions if one.lineno <= frame.line <= (one.end_lineno or 0)]
    nodes = ast.walk(trees[1]) if trees[1] else ()
    calls = [one for one in nodes if isinstance(one, ast.Call) and one.lineno <= caller.line <= (one.end_lineno or 0)]
    methods = calls if name == "forward" else [one for one in calls if _called(one) == name]
    attributes = {known.removeprefix("self"): told for known, told in names.items() if known.startswith("self.")}
    # what may be ``self``
    if name == "forward":
        objects = {ast.unparse(one.func) for one in methods}
    else:
        objects = {ast.unparse(one.func.value) for one in methods if isinstance(one.func, ast.Attribute)}
    passed = {f"{one}{attribute}": told for one in objects for attribute, told in attributes.items()}
    if len(functions) != 1 or len(methods) != 1:
        return passed
    (function,), (call,) = functions, methods
    parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if parameters[:1] in (["self"], ["cls"]):
        parameters = parameters[1:]
    given = [*zip(parameters, call.args, strict=False), *((one.arg, one.value) for one in call.keywords)]
    return passed | {
        ast.unparse(value): names[name]
        for name, value in given
        if name is not None and name in names and isinstance(value, _Variable)
    }


def _called(call: ast.Call) -> str:
    return (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else call.func.id
        if isinstance(call.func, ast.Name)
        else ""
    )
