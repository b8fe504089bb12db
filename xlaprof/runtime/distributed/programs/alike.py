"""The outline that graphs of different ranks must share, and the first line in which two differ.

Ranks that meet in a collective have to record the same operations, over values of the same shapes and dtypes, in the
same order. *Numbers may differ*: ``x * rank`` is one operation. So may offsets, of slices and the like; and so may
operations that neither lead to a collective nor follow one (``if rank == 0: seen += len(batch)``).
"""

from __future__ import annotations

import hashlib
from typing import Any

from xlaprof.runtime.distributed.groups import from_text
from xlaprof.runtime.distributed.job.ledger import Line, Outline
from xlaprof.runtime.tape.graph import Graph, canonical_name, reads
from xlaprof.runtime.trace.ops import STATIC
from xlaprof.runtime.trace.trie import Node, Packed, Ref

#: operators whose integers are offsets, which may differ from rank to rank
_OFFSETS = frozenset(
    f"aten.{name}"
    for name in (
        "slice.Tensor",
        "select.int",
        "narrow.default",
        "slice_scatter.default",
        "select_scatter.default",
        "as_strided.default",
        "as_strided_scatter.default",
        "constant_pad_nd.default",
        "roll.default",
    )
)


def outline(graph: Graph, ranks: int) -> Outline:
    """The outline of ``graph`` that all of its ``ranks`` ranks must share."""
    concerned = _concerned(graph)
    sigs = dict(zip(graph.inputs, graph.sigs, strict=True))
    names: dict[int, str] = {}
    lines: list[Line] = []
    first = ""
    for node in graph.nodes:
        if node not in concerned:
            continue
        for slot in reads(node):
            if slot not in names:  # an input
                names[slot] = f"{sigs[slot].text} p{len(names)}"
        arguments = ", ".join(_arguments(node, names, ranks))
        for out in node.outs:
            names[out.slot] = f"%{len(names)}"
        results = ", ".join(out.sig.text for out in node.outs)
        lines.append(Line(f"{canonical_name(node)}({arguments}) -> {results}", _place(node)))
        if not first and getattr(node.op, "collective", False):
            first = f"{node.op.aten}{_place(node) and ' at ' + _place(node)}"  # type: ignore[union-attr]
    digest = hashlib.sha256("\n".join(line.text for line in lines).encode()).hexdigest()[:24]
    return Outline(digest, tuple(lines), first)


def _concerned(graph: Graph) -> set[Node]:
    """The collectives, the operations that follow one, and all that these need."""
    made = {out.slot: node for node in graph.nodes for out in node.outs}
    after: set[Node] = set()
    for node in graph.nodes:
        if getattr(node.op, "collective", False) or any(made.get(slot) in after for slot in reads(node)):
            after.add(node)
    concerned: set[Node] = set()
    todo = list(after)
    while todo:
        node = todo.pop()
        if node not in concerned:
            concerned.add(node)
            todo += [made[slot] for slot in reads(node) if slot in made]
    return concerned


def _arguments(node: Node, names: dict[int, str], ranks: int) -> list[str]:
    op: Any = node.op
    if getattr(op, "collective", False):
        *args, groups = node.args
        named = from_text(groups)
        if named and sum(map(len, named)) < ranks:  # others have groups of their own
            groups = f"groups of {len(named[0])}"
        return [_text(value, names, exact=True) for value in (*args, groups)]
    kinds = getattr(op, "kinds", ())
    loose = canonical_name(node) in _OFFSETS
    texts = []
    for i, value in enumerate(node.args):
        static = i >= len(kinds) or kinds[i] is STATIC
        texts.append(_text(value, names, exact=static and not loose))
    for name, value in sorted(node.kwargs.items()):
        static = op.kwarg_kinds.get(name) is STATIC
        texts.append(f"{name}={_text(value, names, exact=static and not loose)}")
    return texts


def _text(value: Any, names: dict[int, str], *, exact: bool) -> str:
    if type(value) is Ref:
        return names[value.slot]
    if type(value) is tuple:
        return "[" + ", ".join(_text(v, names, exact=exact) for v in value) + "]"
    if type(value) is Packed or (isinstance(value, (int, float, complex)) and not exact):
        return "number"
    return repr(value)


def _place(node: Node) -> str:
    return f"{node.frames[0].file}:{node.frames[0].line}" if node.frames else ""
