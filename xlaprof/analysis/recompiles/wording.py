"""The program's own words for the things a recompile is about, from the one line that a log holds."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from xlaprof.analysis.model import Place
from xlaprof.analysis.places import named, short
from xlaprof.analysis.principles import KEPT
from xlaprof.analysis.shapes import axes, dims, dtype
from xlaprof.analysis.statements import called, given, nodes
from xlaprof.events import Change
from xlaprof.text.strings import clip

_MOVES = r"\.(to|cuda|xla|send)\(|\bsend_cpu_data_to_device\(|\bdevice\s*="


#: arguments that stand right after the tensor
_SECOND = ("k", "exponent", "other", "value", "fill_value")
#: operations of two operands; a number that is one of them is the second, where the order matters
_OPERATORS = {
    "pow": (ast.Pow,), "div": (ast.Div,), "sub": (ast.Sub,), "remainder": (ast.Mod,), "floor_divide": (ast.FloorDiv,),
    "add": (), "mul": (),
}  # fmt: skip
#: operations of a subscript: the part of it that they read; a mask is counted before it selects
_SUBSCRIPTS = {"select": "value", "index": "value", "count_nonzero": "slice"}
#: operations that take a tensor of positions
_INDEXED = r"aten::(_unsafe_|_index_put_impl|index|gather|scatter|take|put)"
_MODULES = ("torch", "F", "nn", "np", "torch_xla", "xm")
_VARIABLES = ast.Name, ast.Attribute, ast.Subscript
_COMPREHENSIONS = ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp
_CONTAINERS = ("tuple", "list", "dict", "set", "map", "zip")  # calls that make several of what they are given


def operator(change: Change) -> str:
    """``aten::embedding``, where an operation is named."""
    if change.role in ("entry", "turn"):
        return ""
    found = re.search(r"aten::[\w.]+", change.subject) or re.search(r"aten::[\w.]+", change.new)
    return found[0] if found else ""


def is_index(change: Change) -> bool:
    """Whether the elements of the tensor are positions in another one."""
    return bool(re.match(_INDEXED, operator(change)) and re.match(r"[siu]\d", change.old))


def is_edges(change: Change) -> bool:
    """Whether the columns of two rows of whole numbers became more or fewer: a graph's edges."""
    sizes = dims(change.old)
    return axes(change) == (1,) and len(sizes) == 2 and sizes[0] == 2 and dtype(change.old)[:1] in ("s", "i", "u")


def expression(code: str, change: Change) -> str:
    """The expression passed for the argument that changed: ``k`` of ``x.topk(k, dim=1)``; empty if not found."""
    argument, _, operation = change.subject.partition(" of aten::")
    if not operation:
        return ""
    name = operation.rstrip("_").partition(".")[0]
    if name == "select" and (index := position_of(code, change)) is not None:
        return index.start
    if is_of_moved_number(code, change):
        return _only(map(_text, _moved(code)))
    found: set[str] = set()
    for node in nodes(code, ast.AST):
        if isinstance(node, ast.Call) and called(node) in (name, f"{name}_"):
            found.update(_text(keyword.value) for keyword in node.keywords if keyword.arg == argument)
            # the argument that follows the tensor, which a method has before its dot
            functional = not isinstance(node.func, ast.Attribute) or _text(node.func.value) in _MODULES
            at = 1 if functional else 0
            if argument in _SECOND and at < len(node.args) and not isinstance(node.args[at], ast.Starred):
                found.add(_text(node.args[at]))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS.get(name, ())):
            found.add(_text(node.right))
        elif isinstance(node, ast.Slice) and name == "slice":
            bound = node.lower if argument == "start" else node.upper
            found.update([_text(bound)] if bound is not None else ())
    return _only(text for text in found if not is_number(text))


def is_of_moved_number(code: str, change: Change) -> bool:
    """Whether it is a tensor of no dimensions that a line brings to the device, as ``t`` of ``t.to(device)``."""
    return fills(change) and not any(called(call) == "full" for call in nodes(code, ast.Call))


def fills(change: Change) -> bool:
    """Whether it is the number that all elements of a new tensor have."""
    return change.subject == "fill_value of aten::full"


class Slice(NamedTuple):
    """A slice whose two bounds change: ``self.keys[at : at + n] = k``; or an index that does."""

    tensor: str
    axis: int
    start: str
    end: str  # "": it is an index
    value: str  # what is written there; "": it is read


def position_of(code: str, change: Change) -> Slice | None:
    """Where a line reads or writes, if that changed: by its one slice, or its one index that is no constant.

    A slice without a start begins at 0; without an end it has no code.
    """
    taken = [(node, axis, one) for node in nodes(code, ast.Subscript) for axis, one in _axes(node)]
    if change.subject in ("start of aten::slice", "end of aten::slice"):
        found = [one for one in taken if _has_bounds(one[2])]
        # an index takes a dimension away
        known = len(found) == 1 and all(isinstance(one, ast.Slice) for _, one in _axes(found[0][0]))
    else:
        found = [
            (node, axis, one)
            for node, axis, one in taken
            if isinstance(one, (ast.Name, ast.Attribute, ast.BinOp, ast.Call))
            and all(isinstance(other, ast.Slice) for at, other in _axes(node) if at * axis >= 0 and at < axis)
        ]
        known = change.subject == "index of aten::select" and bool(_only(ast.unparse(one) for _, _, one in found))
    if not known:
        return None
    node, axis, index = found[0]
    value = next((ast.unparse(one.value) for one in nodes(code, ast.Assign) if one.targets == [node]), "")
    if not isinstance(index, ast.Slice):
        return Slice(ast.unparse(node.value), axis, ast.unparse(index), "", value)
    if index.upper is None or index.step is not None:
        return None
    start = ast.unparse(index.lower) if index.lower is not None else "0"
    return Slice(ast.unparse(node.value), axis, start, ast.unparse(index.upper), value)


def writes(code: str) -> bool:
    """Whether a line writes to a part of a tensor."""
    return any(
        isinstance(target, ast.Subscript)
        for one in nodes(code, ast.stmt)
        for target in (one.targets if isinstance(one, ast.Assign) else [getattr(one, "target", None)])
    )


def reads_there(code: str) -> bool:
    """Whether a line writes to a part of a tensor what it reads at the same index: ``x[:, j] = y[order, j]``."""
    for one in nodes(code, ast.Assign):
        written = {ast.unparse(at) for target in one.targets for at in _indices(target)}
        if not written.isdisjoint(ast.unparse(at) for at in _indices(one.value)):
            return True
    return False


def _indices(tree: ast.expr) -> list[ast.expr]:
    """The indices in a tree that are no slices."""
    found = (at for node in ast.walk(tree) if isinstance(node, ast.Subscript) for _, at in _axes(node))
    return [at for at in found if not isinstance(at, (ast.Slice, ast.Constant))]


def _axes(node: ast.Subscript) -> list[tuple[int, ast.expr]]:
    """The indices of a subscript with their dimensions, which count from the end behind an ellipsis."""
    indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    ellipsis = [at for at, one in enumerate(indices) if isinstance(one, ast.Constant) and one.value is ...]
    ends = ellipsis[0] if ellipsis else len(indices)
    return [(at if at < ends else at - len(indices), one) for at, one in enumerate(indices) if at != ends]


def _has_bounds(index: ast.expr) -> bool:
    return isinstance(index, ast.Slice) and (index.lower is not None or index.upper is not None)


def _only(texts: Iterable[str]) -> str:
    """The one text; empty where there are none, or several."""
    found = set(texts)
    return found.pop() if len(found) == 1 else ""


def is_number(text: str) -> bool:
    """Whether an expression is a number as it is written."""
    return text.lstrip("-").replace(".", "").isdecimal()


def _text(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 40 else ""


@lru_cache(KEPT)
def variable(change: Change, made: Place, used: Place) -> str:
    """The program's expression for the tensor that differs: what is moved to the device, bound, or read; "": unknown.

    What a line binds is not what it moves: ``x`` of ``logits = model(x.to(device))``.
    """
    if change.name:
        return change.name
    made, used = made.acting, used.acting  # of trainer.train() nothing is moved or read
    code = made.code if made.line else ""
    reading = operator(change)
    if reading == "aten::index" and change.old.startswith("pred"):  # the mask, which is counted first
        reading = "aten::count_nonzero"
    bound, several = "", set[str]()
    for statement in nodes(code, ast.Assign):
        (left, *others), value = statement.targets, statement.value
        if others:
            break
        if isinstance(left, ast.Tuple) and (made.file, made.func.partition(".<locals>.<")[0]) == (used.file, used.func):
            several = {_text(one) for one in left.elts}
        several_bound = called(value) in _CONTAINERS
        if isinstance(left, (ast.Name, ast.Attribute)) and not (several_bound or isinstance(value, _COMPREHENSIONS)):
            bound = _text(left)
            if not change.moved or _brought(value):
                return bound
    local = {name.id for node in nodes(code, ast.comprehension) for name in _names(node.target)}
    moved = _moved(code) if change.moved else []
    known = _only(
        _text(one) for one in moved if isinstance(one, _VARIABLES) and not local & {n.id for n in _names(one)}
    )
    return known or _read(used, reading, several) or (bound if not moved else "")


@lru_cache(KEPT)
def _moved(code: str) -> list[ast.expr]:
    """What the calls of a line bring to the device."""
    return [brought for call in nodes(code, ast.Call) for brought in _brought(call)]


def _brought(call: ast.expr) -> list[ast.expr]:
    if not isinstance(call, ast.Call) or not re.search(_MOVES, ast.unparse(call)):
        return []
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda", "xla"):
        return [call.func.value]
    return call.args[:1] if called(call) == "send_cpu_data_to_device" else []


def moved_names(code: str) -> list[str]:
    """The variables that a line brings to the device."""
    return [_text(one) for one in _moved(code) if isinstance(one, _VARIABLES)]


def moved_as(code: str, name: str) -> str:
    """The expression that a line brings to the device and binds to ``name``; "" where that is a name of its own."""
    moved = _only(map(ast.unparse, _moved(code)))
    bound = any(_text(one.targets[0]) == name for one in nodes(code, ast.Assign))
    return moved if bound and moved != name else ""


def is_fresh(code: str) -> bool:
    """Whether a line makes what it brings to the device: ``torch.tensor(rows).to(device)``."""
    moved = _moved(code)
    given = any(keyword.arg == "device" for call in nodes(code, ast.Call) for keyword in call.keywords)
    return any(isinstance(one, ast.Call) for one in moved) or (given and not moved)


def _read(place: Place, operation: str, among: Collection[str] = ()) -> str:
    """The one variable that a line gives to the operation: ``batch["x"]`` of ``y = model(batch["x"])``.

    ``among``: it is one of these, if any are given.
    """
    code = place.code if place.line else ""
    name = operation.removeprefix("aten::").rstrip("_")
    calls = [call for call in nodes(code, ast.Call) if called(call).rstrip("_") == name]
    lists = [one for call in calls for one in call.args if isinstance(one, (ast.List, ast.Tuple))]
    # what a list takes by an index was computed, and is no input of the graph
    passed = [one for of in lists for one in of.elts if not isinstance(one, ast.Subscript) or _is_constant(one)]
    candidates: Sequence[ast.AST] = calls or nodes(code, ast.AST)
    for node in candidates:
        if name in _SUBSCRIPTS:
            chosen = isinstance(node, ast.Subscript) and _is_constant(node) == (name == "select")
            passed += [getattr(node, _SUBSCRIPTS[name])] if chosen else []
        elif isinstance(node, ast.Call) and (calls or name not in _OPERATORS):
            passed += given(node)
            passed += [node.func.value] if isinstance(node.func, ast.Attribute) else []
        elif name in _OPERATORS:
            passed += [node.left, node.right] if isinstance(node, ast.BinOp) else []
    roots = ((_text(one), next(iter(_names(one)), None)) for one in passed if isinstance(one, _VARIABLES))
    return _only(
        text
        for text, root in roots
        if root is not None and root.id not in ("self", *_MODULES) and "(" not in text and (not among or text in among)
    )


def _is_constant(node: ast.Subscript) -> bool:
    return isinstance(node.slice, ast.Constant)


def _names(node: ast.AST) -> list[ast.Name]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Name)]


def tensor(change: Change, made: Place, used: Place) -> str:
    """The tensor that differs, as the user knows it, with the line that made it."""
    name = variable(change, made, used)
    if change.name or not made.line:
        return name or (f"the {change.subject}" if change.subject else "an input of the graph")
    if change.moved:
        moved = "brought to the device" if re.search(_MOVES, made.code) or not made.code else "made for the device"
        return f"{name or ('an index' if is_index(change) else 'the batch')} ({moved} at {short(made)})"
    return f"{name or 'the tensor'} (computed at {short(made)})"


def quoted(place: Place) -> str:
    """The line as a reader finds it: "line 36 (`if step % 4 == 0:`)"; a library's with its file."""
    line = place.acting
    return f"{named(place)} (`{clip(line.code, 60)}`)" if line.code else named(place)
