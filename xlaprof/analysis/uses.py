"""The use that a line makes of a value which it reads from the device, from the line's syntax tree.

First the expression that reads: a call such as ``.item()`` or ``float()``; where none is written, what Python must know
the value of: a test, an operand of ``and``, an index. Then the way up from there, through arithmetic and conversions,
to what takes the value: a test decides, ``+=`` adds up, a subscript indexes, ``range()`` sizes, ``print()`` logs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from xlaprof.analysis.statements import called, given, names, nodes, parsed
from xlaprof.text.strings import without_comment


class Use(IntEnum):
    """Of several in one line the smallest counts."""

    GOES_ON = 0  # the condition of a while, or of a break
    DECIDES = 1
    ASSERTS = 2
    SIZES = 3  # a slice, range(), a shape
    LOOKS_UP = 4  # a text in a table of the host's
    INDEXES = 5
    ADDS_AT = 6  # at an entry that the program chooses
    ADDS_UP = 7
    UPDATES = 8  # what the next turn takes: a step size, a moving average
    LOGS = 9  # print, a logger, an f-string, a list, a dict
    WHOLE = 10  # as a whole number of Python's, which is a position, a size or a number of times
    OTHER = 11


class Read(NamedTuple):
    """A read of a line."""

    use: Use
    name: str = ""  # ".item()", "float()", "the condition of the if"; empty: not known
    written: bool = False  # the line reads by itself, as with .item()
    words: frozenset[str] = frozenset()  # names and attributes of the line
    computed: bool = False  # the line computes the value that it reads; else it was kept
    taker: str = ""  # the first statement further on that takes the value, where one is known


_COPIES = ("tolist", "cpu", "numpy")
_METHODS = ("item", *_COPIES)
_CONVERSIONS = ("float", "int", "bool")
_FUNCTIONS = {"save": "save()", "equal": "torch.equal()", "allclose": "torch.allclose()"}
#: calls that hand on what they are given
_THROUGH = {*_CONVERSIONS, *_METHODS, "any", "all", "round", "abs", "str", "repr", "min", "max", "list", "tuple", "set",
            "sorted", "format", "array", "asarray", "to"}  # fmt: skip
_MATH = {"math", "cmath", "np", "numpy", "torch", "F"}  # modules whose functions do, and whose log() is a number's
SIZED = {"range", "zeros", "ones", "full", "empty", "rand", "randn", "arange", "linspace", "new_zeros", "new_ones",
          "view", "reshape", "expand", "repeat", "pad", "split", "narrow", "topk", "tile", "islice"}  # fmt: skip
_LOGGED = {"print", "debug", "info", "warning", "error", "critical", "exception", "write", "add_scalar", "add_scalars",
           "log_dict", "log_metric", "log_metrics", "set_postfix", "set_postfix_str", "set_description", "append",
           "appendleft", "extend", "dict", "update", "writerow", "log"}  # fmt: skip
#: functions whose result is as long as values decide, unless they are given its size
_SELECTS = {"nonzero", "flatnonzero", "argwhere", "extract", "compress", "setdiff1d", "intersect1d", "union1d"}
#: functions that make one array of many
_JOINS = {"cat", "concat", "concatenate", "stack", "hstack", "vstack"}
_LOGGERS = {"log", "logger", "logging", "wandb", "mlflow"}
#: modules whose functions take Python numbers as such, but for arithmetic
_PYTORCH = ("F", "nn.functional", "torch.nn.functional")
#: Python's own functions that compare what they are given
PICKS = {"max()": "maximum", "min()": "minimum"}
_NAMES: Mapping[type, str] = {
    ast.If: "the condition of the if",
    ast.While: "the condition of the while",
    ast.Assert: "the assertion",
    ast.Subscript: "an index",
    ast.Slice: "a bound of a slice",
}


def read_of(code: str, *, scalar: bool, takers: Sequence[str] = (), func: str = "") -> Read:
    """The read of a number, or of a tensor, in the line ``code``.

    ``takers``: the statements that take what the line binds; of a test the test itself, with what leaves the loop; of
    what is returned first the one that calls the line's function, ``func``.
    """
    bare = without_comment(code)  # as takers are told
    tree = parsed(next((one for one in takers if one.startswith(bare)), code), parts=True)
    if tree is None:
        return Read(Use.OTHER)
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    words = frozenset(names(tree))
    written = _written(tree, scalar=scalar)
    reads = [Read(_use(node, above), name, True, words, _computes(node)) for node, name in written]
    if not reads and scalar:
        asked = ((_use(node, above), _asker(node, above)) for node in _asked(tree))
        reads = [Read(min(use, Use.DECIDES) if name in PICKS else use, name, False, words) for use, name in asked]
    read = min(reversed(reads), key=lambda read: read.use, default=Read(Use.OTHER, words=words))
    return read if read.use < Use.WHOLE else _taken(read, tree, takers, func.rpartition(".")[2])


def _taken(read: Read, tree: ast.AST, takers: Iterable[str], func: str) -> Read:
    """The read of a line that gives the value a name, or returns it, by what takes that, and what is computed of it.

    What needs the value at once counts before what only keeps or shows it.
    """
    bound, returns = _bound(tree), _returns(tree)
    found: dict[Use, str] = {}
    for code in takers:
        taker = parsed(code, parts=True)
        if taker is None:
            continue
        above = {child: node for node in ast.walk(taker) for child in ast.iter_child_nodes(node)}
        spots = _loads(taker, bound)
        spots += [one for one in ast.walk(taker) if returns and called(one) == func]
        if not spots:
            continue
        read = read._replace(words=read.words | frozenset(names(taker)))
        use = min(_use(one, above) for one in spots)
        targets = [target for one in nodes(code, ast.Assign) for target in one.targets]
        if use >= Use.WHOLE and targets:
            bound |= _bound(taker)
            if any(isinstance(one, ast.Subscript) for one in targets):
                found.setdefault(Use.LOGS, code)
        elif use == Use.UPDATES:  # of a number or of a tensor: the value is computed with
            found.setdefault(Use.OTHER, code)
        else:
            found.setdefault(use, code)
    kept = min(max(found, default=read.use), read.use)
    use = min((one for one in found if one < Use.ADDS_AT), default=kept)
    return read._replace(use=use, taker=found.get(use, ""))


def _bound(tree: ast.AST) -> set[str]:
    """The names that a statement binds: "a" and "b" of ``a, b = pair``."""
    stored = (one for one in ast.walk(tree) if isinstance(getattr(one, "ctx", None), ast.Store))
    return {ast.unparse(one) for one in stored if not isinstance(one, ast.Tuple | ast.List | ast.Starred)}


def _loads(tree: ast.AST, bound: Container[str]) -> list[ast.AST]:
    """Where a statement takes one of the names that another one binds."""
    loaded = (one for one in ast.walk(tree) if isinstance(getattr(one, "ctx", None), ast.Load))
    return [one for one in loaded if ast.unparse(one) in bound]


def _returns(tree: ast.AST) -> bool:
    return any(isinstance(one, ast.Return) for one in ast.walk(tree))


def hands_on(code: str, other: str) -> bool:
    """Whether the statement ``other`` takes what ``code`` binds: ``state`` of ``state, loss = step(state)``."""
    binds, takes = parsed(code), parsed(other, parts=True)
    if binds is None or takes is None:
        return False
    return bool(_loads(takes, _bound(binds)))


def _computes(node: ast.AST) -> bool:
    """Whether what is read is computed there, by calls or comparisons."""
    calls = (called(one) for one in ast.walk(node) if isinstance(one, ast.Call))
    compares = any(isinstance(one, ast.Compare) for one in ast.walk(node))
    return compares or any(name not in (*_CONVERSIONS, *_METHODS) for name in calls)


def _owner(node: ast.Call) -> str:
    """``log`` of ``self.log.info()``."""
    return next(names(node.func.value), "") if isinstance(node.func, ast.Attribute) else ""


def _written(tree: ast.AST, *, scalar: bool) -> list[tuple[ast.Call, str]]:
    """Calls that read, outer ones first, and what they are called; of the sort that is asked for, if there are any."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = {node: f".{called(node)}()" for node in calls if called(node) in _METHODS}
    named |= {node: '.to("cpu")' for node in calls if called(node) == "to" and "cpu" in ast.unparse(node)}
    named |= {node: "jax.device_get()" for node in calls if called(node) == "device_get"}
    named |= {node: ".numpy()" for node in calls if _owner(node) in ("np", "numpy") and "array" in called(node)}
    free = [node for node in calls if isinstance(node.func, ast.Name) and any(map(_is_open, node.args))]
    converted = [(node, f"{called(node)}()") for node in free if called(node) in _CONVERSIONS]
    return (
        [one for one in named.items() if (one[1] == ".item()") == scalar]
        or converted * scalar  # within np.array([int(x[i]) for i in range(n)]), say
        or [*named.items()]
        or converted
        or [(node, _FUNCTIONS[called(node)]) for node in calls if called(node) in _FUNCTIONS]
    )


def _asked(tree: ast.AST) -> Iterator[ast.AST]:
    """Expressions that Python must know the value of: tests, indices, sizes."""
    for node in ast.walk(tree):
        asked: list[ast.expr | None] = []
        match node:
            case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
                asked = [node.test]
            case ast.BoolOp():
                asked = [*node.values]
            case ast.comprehension():
                asked = [*node.ifs]
            case ast.UnaryOp(op=ast.Not()):
                asked = [node.operand]
            case ast.Compare(ops=[ast.In() | ast.NotIn(), *_]):
                asked = [node]
            case ast.Subscript():
                asked = [node.slice] * (not any(isinstance(one, ast.Slice) for one in ast.walk(node.slice)))
            case ast.Slice():
                asked = [node.lower, node.upper]
            case ast.Call(func=ast.Name()) if f"{called(node)}()" in PICKS and len(node.args) > 1:
                asked = [*node.args]
            case ast.Call() if called(node) in ("round", *SIZED):
                asked = [*node.args]
        yield from (one for one in asked if one is not None and _is_open(one))


def _is_open(node: ast.AST) -> bool:
    """Whether an expression may hold a value of the device."""
    if isinstance(node, ast.BoolOp) or called(node) in ("len", "isinstance", "hasattr", "callable"):
        return False
    if isinstance(node, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
        return False
    return any(names(node))


def _asker(node: ast.AST, above: Mapping[ast.AST, ast.AST]) -> str:
    """What makes Python look at the value."""
    node = above[node]
    while isinstance(node, ast.BoolOp | ast.UnaryOp):
        node = above[node]
    return f"{called(node)}()" if called(node) else _NAMES.get(type(node), "a test")


def _use(node: ast.AST, above: Mapping[ast.AST, ast.AST]) -> Use:
    """What takes the value of ``node``; where that is not known, whether it is made a whole number."""
    use, one = _taker(node, above), node
    while use == Use.OTHER and isinstance(one, ast.expr):
        if called(one) == "int" and any(names(one)):
            return Use.WHOLE
        one = above[one]
    return use


def _taker(node: ast.AST, above: Mapping[ast.AST, ast.AST]) -> Use:
    use = Use.DECIDES if called(node) == "bool" else Use.OTHER  # where nothing further up says more
    while (parent := above.get(node)) is not None:
        match parent:
            case ast.While() if parent.test is node:
                return Use.GOES_ON
            case ast.Assert():
                return Use.ASSERTS
            case ast.If() if parent.test is node:
                leaves = any(isinstance(one, ast.Break | ast.Return) for one in parent.body)
                return Use.GOES_ON if leaves else Use.DECIDES
            case ast.IfExp() if parent.test is node:
                use = Use.DECIDES
            case ast.BoolOp() | ast.Compare() | ast.UnaryOp(op=ast.Not()):
                use = Use.DECIDES
            case ast.comprehension() if node in parent.ifs:
                use = Use.DECIDES
            case ast.AugAssign(target=ast.Subscript(slice=index)) if any(names(index)):
                return Use.ADDS_AT
            case ast.AugAssign(op=ast.Add() | ast.Sub() | ast.BitOr() | ast.BitAnd()):
                return Use.ADDS_UP  # a sum, or a flag: nothing needs it before all turns are done
            case ast.AugAssign():
                return Use.UPDATES
            case ast.Assign(targets=[target]) if use == Use.OTHER and _is_within(target, parent.value):
                return Use.ADDS_UP if _is_sum(target, parent.value) else Use.UPDATES
            case ast.Subscript() if parent.slice is node:
                return Use.LOOKS_UP if _is_text(above.get(parent)) else Use.INDEXES
            case ast.Slice():
                return Use.SIZES
            case ast.FormattedValue() | ast.BinOp(op=ast.Mod(), left=ast.Constant(value=str())):
                return Use.LOGS
            case ast.Dict() | ast.DictComp() | ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=str()))]):
                use = min(use, Use.LOGS)
            case ast.Call() if parent.func is not node:
                name, owner = called(parent), _owner(parent)
                if name == "sum":
                    return Use.ADDS_UP
                if name in SIZED:
                    return Use.SIZES
                if (name in _LOGGED and owner not in _MATH) or owner in _LOGGERS:
                    return Use.LOGS
                if name not in _THROUGH and owner not in _MATH:
                    return use
            case ast.Expr():
                return Use.LOGS  # a value that nobody takes
            case ast.stmt() | ast.Lambda():
                return use
        node = parent
    return use


def _is_text(node: ast.AST | None) -> bool:
    """Whether something is compared with a text, or joined to one: then it is a text, too."""
    beside = [*ast.iter_child_nodes(node)] if isinstance(node, ast.Compare | ast.BinOp) else []
    return any(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in beside)


def _is_within(target: ast.expr, value: ast.expr) -> bool:
    """Whether what a line binds is a part of what it computes, handed to no function: ``x = 0.9 * x + y.item()``."""
    sides = [value.left, value.right] if isinstance(value, ast.BinOp) else []
    return any(ast.unparse(one) == ast.unparse(target) or _is_within(target, one) for one in sides)


def _is_sum(target: ast.expr, value: ast.expr) -> bool:
    """Whether it is the target and something else."""
    sides = [value.left, value.right] if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) else []
    return ast.unparse(target) in map(ast.unparse, sides)


def is_called_back(code: str, takers: Sequence[str], func: str) -> bool:
    """Whether the line returns a value from ``func``, which nothing of the program calls there, but which a call is
    given: ``minimize(func, start)``. What calls it back, as SciPy's search, goes on by the value."""
    tree, name = parsed(code, parts=True), func.rpartition(".")[2]
    if tree is None or not takers or not _returns(tree):
        return False
    calls = nodes(takers[0], ast.Call)
    handed = any(name in names(one) for call in calls for one in given(call))
    return handed and not any(called(call) == name for call in calls)


# -- a name, and what a line does with it


def is_handed_over(code: str, name: str) -> bool:
    """Whether a call of the line passes ``name`` itself; also where the line is not known, or part of a statement."""
    return not _uses(code, name) or any(
        ast.unparse(one) == name for call in nodes(code, ast.Call) for one in given(call)
    )


def comes_back(code: str) -> bool:
    """Whether a line gives what a call returns the name of something that it passes: ``x, v = step(x, v, mass)``."""
    tree = parsed(code, parts=True)
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call)] if tree is not None else []
    return tree is not None and any(ast.unparse(one) in _bound(tree) for call in calls for one in given(call))


def _uses(code: str, name: str) -> list[ast.expr]:
    """Where a line has ``name``, also from within the module that holds it, whose path has more before it."""
    written = ((node, ast.unparse(node)) for node in nodes(code, ast.expr))
    return [node for node, text in written if text == name or _ends_with(name, text)]


def takes_number(code: str, name: str) -> str:
    """The function of PyTorch's that a line hands the number ``name`` to: ``dropout`` of ``F.dropout(x, self.rate)``.

    Or the module whose number it is and that the line calls: ``self.drop`` of ``self.drop(x)`` for ``self.drop.p``. A
    module of the program's own would have a line of its own. Empty where the line does something else with it, as
    computing, for which a tensor would do.
    """
    uses, calls = _uses(code, name), nodes(code, ast.Call)
    owner = name.rpartition(".")[0]
    modules = {text for call in calls if owner == (text := ast.unparse(call.func)) or _ends_with(owner, text)}
    if owner and not uses and modules:
        return modules.pop()
    takers = [ast.unparse(call.func) for call in calls for one in given(call) if one in uses]
    function = takers[0] if len(set(takers)) == 1 and len(takers) == len(uses) else ""
    root, _, method = function.rpartition(".")
    return method if root in _PYTORCH else ""


def _ends_with(path: str, called: str) -> bool:
    """Whether ``self.dropout`` is, in a module further in, what ``self.blocks.0.dropout`` names."""
    root, _, attribute = called.partition(".")
    return root == "self" and bool(attribute) and path.endswith(f".{attribute}")


def needed_for(code: str, name: str) -> str:
    """What a line needs the number ``name`` for, under whatever path it has there, that a tensor cannot be: a key of
    ``NEEDS``; "": nothing of these."""
    for node in nodes(code, ast.AST):
        parts: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            parts = [("condition", node.test)]
        elif isinstance(node, (ast.For, ast.comprehension)):
            parts = [("loop", node.iter)]
        elif isinstance(node, ast.Slice):
            parts = [("size", node.lower), ("size", node.upper)]
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            parts = [("place", one) for one in node.slice.elts if not isinstance(one, ast.Slice)]
        elif isinstance(node, ast.Call) and called(node) in SIZED:
            sizes = given(node) if called(node) != "full" else node.args[:1]  # which is filled with the second
            parts = [("size", one) for one in sizes]
        for need, part in parts:
            if part is not None and name.rpartition(".")[2] in re.findall(r"\w+", ast.unparse(part)):
                return need
    return ""


def indexed_by(code: str, name: str) -> list[str]:
    """The lists, or other containers, that a line indexes with the number ``name``, under whatever path it has there:
    ``sched.betas`` of ``sched.betas[t] * x``. Not those whose elements no tensor can hold, which the line calls or
    takes an attribute of, and not what takes several indices, or a tensor's, which is a tensor already."""
    tree = parsed(code, parts=True)
    walked = list(ast.walk(tree)) if tree is not None else []
    opened = {id(one.func) for one in walked if isinstance(one, ast.Call)}
    opened |= {id(one.value) for one in walked if isinstance(one, ast.Attribute)}
    found = (one for one in walked if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Load))
    alone = (one for one in found if not isinstance(one.slice, ast.Slice | ast.Tuple) and id(one) not in opened)
    last, numbers = name.rpartition(".")[2], {"int", "len", "abs", "min", "max"}
    known = (one for one in alone if all(called(call) in ("", *numbers) for call in ast.walk(one.slice)))
    indexed = sorted((one for one in known if last in names(one.slice)), key=lambda one: (one.lineno, one.col_offset))
    return list(dict.fromkeys(ast.unparse(one.value) for one in indexed))


def needed_by_head(code: str, name: str) -> str:
    """The same of the head of a block that has the value under a name of its own: ``if on:`` in a loop over a list."""
    if re.search(rf"\b{re.escape(name.rpartition('.')[2])}\b", code):
        return ""
    for node in nodes(code, ast.stmt):
        if isinstance(node, ast.If | ast.While) and any(names(node.test)):
            return "condition"
        if isinstance(node, ast.For) and called(node.iter) == "range":
            return "loop"
    return ""


def computed_of_all(code: str) -> str:
    """What of a line computes from all that an object has kept: ``self.auc.compute()``, which metrics of all libraries
    have, and which takes nothing; ``torch.cat(self.scores)``. "": nothing."""
    for node in nodes(code, ast.Call):
        first = ast.unparse(given(node)[0]) if given(node) else ""
        computes = called(node) == "compute" and isinstance(node.func, ast.Attribute) and not first
        if computes or (called(node) in _JOINS and re.fullmatch(r"self(\.\w+)+", first)):
            return ast.unparse(node)
    return ""


def selection(code: str) -> str:
    """What of a line selects as many elements as its values decide: a condition as an index, or ``nonzero()`` and the
    like; "" where nothing is seen to."""
    for node in nodes(code, ast.expr):
        if isinstance(node, ast.Subscript) and _is_condition(node.slice):
            return ast.unparse(node.slice)
        if isinstance(node, ast.Call) and (
            called(node) in _SELECTS or (called(node) in ("where", "unique") and len(given(node)) == 1)
        ):
            return ast.unparse(node)
    return ""


def _is_condition(node: ast.expr) -> bool:
    """Whether an index is made of comparisons."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Invert) and _is_condition(node.operand)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitAnd | ast.BitOr | ast.BitXor) and _is_condition(node.left)
    return isinstance(node, ast.Compare)
