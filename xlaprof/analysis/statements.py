"""One line of the program as a tree, from the text that a log holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import TypeVar

from xlaprof.analysis.principles import KEPT
from xlaprof.text.strings import without_comment

_Node = TypeVar("_Node", bound=ast.AST)
_PAIRS = {"(": ")", "[": "]", "{": "}"}
#: methods of numpy's generators that draw one number unless they are given a size, and where they take it
_SIZE_AT = {"random": 0, "standard_normal": 0, "choice": 1, "poisson": 1, "exponential": 1, "geometric": 1,
            "integers": 2, "randint": 2, "normal": 2, "uniform": 2, "binomial": 2, "beta": 2, "gamma": 2,
            "lognormal": 2, "laplace": 2}  # fmt: skip


@lru_cache(KEPT)
def parsed(code: str, *, parts: bool = False) -> ast.Module | None:
    """The line's tree, which nobody changes; the head of a block gets a body. None: it is a part of a longer statement.

    ``parts``: make a statement of such a part, with the brackets that stand on other lines; what is around it there is
    not known.
    """
    texts = [code, f"{code}\n pass", f"if 0: pass\n{code}\n pass"]  # a comment may stand behind the head of a block
    if parts:
        whole = _closed(without_comment(code))
        texts += [whole, f"_({whole})", f"{{{whole}}}"]
    for text in texts:
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
    return None


def nodes(code: str, kind: type[_Node]) -> list[_Node]:
    """What a line has of a kind, outer ones first; none where it is a part of a longer statement."""
    tree = parsed(code)
    return [node for node in ast.walk(tree) if isinstance(node, kind)] if tree is not None else []


def names(tree: ast.AST) -> Iterator[str]:
    """Names and attributes, outer ones first: ``item``, ``loss`` of ``loss.item``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            yield node.id if isinstance(node, ast.Name) else node.attr


def called(node: ast.AST) -> str:
    """The last part of the name of what is called; empty for all else."""
    return next(names(node.func), "") if isinstance(node, ast.Call) else ""


def given(call: ast.Call) -> list[ast.expr]:
    """What a call is given, by position or by name."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def written_in_part(code: str) -> str:
    """The array of which a line writes a part, and which it gives up: ``x`` of ``x = x.at[i].set(value)``; "": none."""
    for statement in nodes(code, ast.Assign):
        call = statement.value
        part = call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
        at = part.value if isinstance(part, ast.Subscript) else None
        if isinstance(at, ast.Attribute) and at.attr == "at":
            array = ast.unparse(at.value)
            if array in map(ast.unparse, statement.targets):
                return array
    return ""


def draws_one(code: str) -> str:
    """The method of a random generator of the host with which a line draws a single number; empty: it draws none."""
    for call in nodes(code, ast.Call):
        name = called(call)
        sized = len(call.args) > _SIZE_AT.get(name, -1) or any(one.arg in ("size", None) for one in call.keywords)
        if isinstance(call.func, ast.Attribute) and not sized and "torch" not in names(call.func):
            return name
    return ""


def _closed(code: str) -> str:
    """``code`` with the brackets that it lacks on either side."""
    before, after = "", ""
    for sign in code:
        if sign in _PAIRS:
            after = _PAIRS[sign] + after
        elif after.startswith(sign):
            after = after[1:]
        elif sign in _PAIRS.values():
            before = next(opener for opener, closer in _PAIRS.items() if closer == sign) + before
    return f"{before}{code}{after}"
