"""The program's own words for the things a recompile is about, from the one line that a log holds."""

from __future__ import annotations

import ast
import re

from xlaprof.analysis.model import Place
from xlaprof.analysis.places import named, short
from xlaprof.events import Change
from xlaprof.text.strings import clip

_MOVES = re.compile(r"\.(to|cuda|xla|send)\(|\bsend_cpu_data_to_device\(|\bdevice\s*=")


#: arguments that stand right after the tensor
_SECOND = ("k", "exponent", "other", "value")


def operator(change: Change) -> str:
    """``aten::embedding``, where an operation is named."""
    found = re.search(r"aten::[\w.]+", change.subject) or re.search(r"aten::[\w.]+", change.new)
    return found[0] if found else ""


def expression(code: str, change: Change) -> str:
    """The expression passed for the argument that changed: ``k`` of ``x.topk(k, dim=1)``; empty if not found."""
    argument, _, operation = change.subject.partition(" of aten::")
    tree = _parsed(code)
    if not operation or tree is None:
        return ""
    name = operation.rstrip("_").partition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in (name, f"{name}_"):
            for keyword in node.keywords:
                if keyword.arg == argument:
                    return _text(keyword.value)
            # the argument that follows the tensor, which a method has before its dot
            functional = not isinstance(node.func, ast.Attribute) or _text(node.func.value) in ("torch", "F")
            at = 1 if functional else 0
            if argument in _SECOND and at < len(node.args) and not isinstance(node.args[at], ast.Starred):
                return _text(node.args[at])
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and name == "pow":
            return _text(node.right)
    return ""


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _text(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 40 else ""


def _parsed(code: str) -> ast.Module | None:
    """One line as a tree; the head of a block gets a body."""
    for text in (code, f"{code} pass", f"if 0: pass\n{code} pass"):
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):  # part of a longer statement
            continue
    return None


def target(place: Place) -> str:
    """The one name that the line binds: ``ids`` of ``ids = torch.cat(...)``; empty where it binds none, or several."""
    tree = _parsed(place.code)
    if tree is None or not tree.body:
        return ""
    statement = tree.body[0]
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        one = statement.targets[0]
        return _text(one) if isinstance(one, (ast.Name, ast.Attribute)) else ""
    return ""


def tensor(change: Change, made: Place) -> str:
    """The tensor that differs, as the user knows it, with the line that made it."""
    if change.name:
        return change.name
    name = target(made) if made.line else ""
    if change.moved and made.line:
        moved = "brought to the device" if _MOVES.search(made.code) or not made.code else "made for the device"
        return f"{name or 'the batch'} ({moved} at {short(made)})"
    if made.line:
        return f"{name or 'the tensor'} (computed at {short(made)})"
    return f"the {change.subject}" if change.subject else "an input of the graph"


def quoted(place: Place) -> str:
    """The line as a reader finds it: "line 36 (`if step % 4 == 0:`)"; a library's with its file."""
    line = place.acting
    return f"{named(place)} (`{clip(line.code, 60)}`)" if line.code else named(place)
