"""The graph that a barrier needs: the recorded operations that its outputs depend on, and a canonical hash.

The same subgraph at another place of the trie has the same hash, so it finds the same program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from xlaprof.runtime.trace.ops import Op, is_view
from xlaprof.runtime.trace.storage import Sig
from xlaprof.runtime.trace.trie import Node, Packed, Ref, leaves
from xlaprof.text.quantities import plural

from .grow import form_of

if TYPE_CHECKING:
    from xlaprof.recording.stacks import RawFrame


_NONE: Mapping[int, int] = MappingProxyType({})
_NO_NUMBERS: Mapping[Packed, str] = MappingProxyType({})


class Graph(NamedTuple):
    """Operations in order, and their inputs. Slots are those of the trace that it was extracted from."""

    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]  # slots
    positions: tuple[int, ...]  # of the inputs, among those of the tape
    sigs: tuple[Sig, ...]  # of the inputs
    floats: tuple[Packed, ...]  # packed scalars read, in order of first use
    ints: tuple[Packed, ...]
    seeds: tuple[int, ...]  # rows of the tape's seeds
    outs: tuple[int, ...]  # slots
    places: dict[int, tuple[RawFrame, ...]]  # slot of an output -> the user's frames that recorded it
    hash: str

    @property
    def numbering(self) -> dict[Packed, int]:
        """Index of each packed scalar among those of its kind in the program's arguments."""
        return {packed: i for group in (self.floats, self.ints) for i, packed in enumerate(group)}

    def reader(self, slot: int) -> Node | None:
        """The first operation that reads the value at ``slot``."""
        return next((node for node in self.nodes if slot in reads(node)), None)


def place(node: Node) -> str:
    """``aten::add at train.py:12``."""
    at = f" at {node.frames[0].file}:{node.frames[0].line}" if node.frames else ""
    return f"{node.op.aten if node.op is not None else 'a value'}{at}"


def graph_text(graph: Graph) -> str:
    """``a graph of 2 operations that ends with aten::add at train.py:12``."""
    n = len(graph.nodes)
    last = next((node for node in reversed(graph.nodes) if node.frames), None)
    ends = f" that ends with {place(last)}" if last is not None else ""
    return f"a graph of {plural(n, 'operation')}{ends}"


def in_order(end: Node, outs: tuple[int, ...], input_at: Mapping[int, int]) -> tuple[int, ...]:
    """``outs``, ordered by what they are computed of instead of when they were recorded.

    Autograd runs the backward pass of a backward pass in another order in each of the first steps (it numbers what it
    makes per thread), so the same gradients are recorded in another order.
    """
    if len(outs) < 2:
        return outs
    maker = {out.slot: node for node in end.path() for out in node.outs}
    names: dict[int, str] = {}
    for node in _post_order(maker, outs, input_at):
        text = form_of(node).text if node.slot in input_at else _described(node, names, _NO_NUMBERS)
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        for i, out in enumerate(node.outs):
            names[out.slot] = f"{digest}.{i}"
    return tuple(sorted(outs, key=lambda slot: (names[slot], slot)))


def extract(end: Node, outs: tuple[int, ...], input_at: Mapping[int, int]) -> Graph:
    """The part of the trace ending at ``end`` that the values at ``outs`` depend on.

    Its arguments are in the order in which its results, one after the other, need them; so is the text that is hashed.
    Operations are in the order of the trace, which the hash leaves out, except for those that draw random numbers or
    meet other processes.

    ``input_at``: the tape's, slots of the inputs and where their values are.
    """
    path = end.path()
    maker = {out.slot: node for node in path for out in node.outs}
    order = _post_order(maker, outs, input_at)
    needed = {id(node) for node in order}
    nodes = [node for node in path if id(node) in needed and node.slot not in input_at]
    bound = {id(node): f"@{i}" for i, node in enumerate(node for node in nodes if _is_bound(node))}
    inputs: list[Node] = []
    floats: list[Packed] = []
    ints: list[Packed] = []
    numbering: dict[Packed, str] = {}
    names: dict[int, str] = {}
    lines: list[str] = []
    for node in order:
        if node.slot in input_at:
            names[node.slot] = f"p{len(inputs)}"
            lines.append(f"p{len(inputs)}:{form_of(node).text}")
            inputs.append(node)
            continue
        for scalar in leaves(node.args, node.kwargs)[1]:
            if scalar not in numbering:
                group = floats if scalar.kind == "f" else ints
                numbering[scalar] = f"{scalar.kind}{len(group)}"
                group.append(scalar)
        text = _described(node, names, numbering)
        first = len(names)
        for i, out in enumerate(node.outs):
            names[out.slot] = f"v{first + i}"
        lines.append(f"{names[node.slot] if node.outs else ''}={text}{bound.get(id(node), '')}")
    lines.append("return " + ",".join(names[slot] for slot in outs))
    return Graph(
        nodes=tuple(nodes),
        inputs=tuple(node.slot for node in inputs),
        positions=tuple(input_at[node.slot] for node in inputs),
        sigs=tuple(form_of(node) for node in inputs),
        floats=tuple(floats),
        ints=tuple(ints),
        seeds=tuple(node.next_seed for node in nodes if node.op is not None and node.op.random),
        outs=outs,
        places={slot: maker[slot].frames for slot in outs},
        hash=hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32],
    )


def _is_bound(node: Node) -> bool:
    """Does it matter when, among others, the operation runs?"""
    return node.op is not None and (node.op.random or getattr(node.op, "collective", False))


def _described(node: Node, names: dict[int, str], numbering: Mapping[Packed, str]) -> str:
    """The operation over arguments of these names, with the shapes and dtypes of its results."""
    arguments = _text((node.args, tuple(sorted(node.kwargs.items()))), names, numbering)
    return f"{canonical_name(node)}{arguments}:{','.join(out.sig.text for out in node.outs)}"


def _post_order(maker: dict[int, Node], outs: tuple[int, ...], input_at: Mapping[int, int]) -> list[Node]:
    """The operations and inputs that the values at ``outs`` depend on, each after what it reads."""
    order: list[Node] = []
    seen: set[int] = set()
    for slot in outs:
        todo = [(maker[slot], False)]
        while todo:
            node, is_read = todo.pop()
            if is_read:
                order.append(node)
            elif id(node) not in seen:
                seen.add(id(node))
                todo.append((node, True))
                if node.slot not in input_at:
                    todo += [(maker[read], False) for read in reversed(reads(node))]
    return order


def size(end: Node, outs: tuple[int, ...]) -> int:
    """How many recorded operations the values at ``outs`` depend on."""
    return len(_needed({out.slot: node for node in end.path() for out in node.outs}, outs))


def shared(end: Node, graph: Graph, outs: tuple[int, ...]) -> int:
    """How many operations of ``graph``, except views, the values at ``outs`` on the trace to ``end`` also need."""
    needed = _needed({out.slot: node for node in end.path() for out in node.outs}, outs)
    return sum(id(node) in needed and not _is_view(node) for node in graph.nodes)


def _is_view(node: Node) -> bool:
    return isinstance(node.op, Op) and is_view(node.op.func)


def depended_on(end: Node, outs: tuple[int, ...]) -> dict[int, Node]:
    """The operations, and the inputs, that the values at ``outs`` on the trace to ``end`` depend on, by slot."""
    path = end.path()
    needed = _needed({out.slot: node for node in path for out in node.outs}, outs)
    return {node.slot: node for node in path if id(node) in needed}


def _needed(maker: dict[int, Node], outs: tuple[int, ...]) -> set[int]:
    """Ids of the nodes that the values at ``outs`` depend on."""
    return {id(node) for node in _post_order(maker, outs, _NONE)}


def canonical_name(node: Node) -> str:
    """The operator's name, that of the functional twin for one in place."""
    op = node.op
    assert op is not None
    twin = getattr(op, "twin", None)
    return str(twin) if twin is not None else op.name


def reads(node: Node) -> list[int]:
    """The slots of the values that an operation reads."""
    return leaves(node.args, node.kwargs)[0]


def _text(value: Any, names: dict[int, str], scalars: Mapping[Packed, str]) -> str:
    if type(value) is Ref:
        return names[value.slot]
    if type(value) is Packed:
        return scalars.get(value, value.kind)
    if type(value) is tuple:
        return "(" + ",".join(_text(v, names, scalars) for v in value) + ")"
    # 1, 1.0 and True are one constant: the dtypes of results tell them apart
    return repr(float(value)) if isinstance(value, (bool, int, float)) else repr(value)
