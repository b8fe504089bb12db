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
    from collections.abc import Iterable

    from xlaprof.recording.stacks import RawFrame


_NONE: Mapping[int, int] = MappingProxyType({})


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


def extract(end: Node, outs: tuple[int, ...], input_at: Mapping[int, int]) -> Graph:
    """The part of the trace ending at ``end`` that the values at ``outs`` depend on.

    ``input_at``: the tape's, slots of the inputs and where their values are.
    """
    path = end.path()
    maker = {out.slot: node for node in path for out in node.outs}
    needed = _needed(maker, outs, input_at)
    nodes: list[Node] = []
    inputs: list[Node] = []
    floats: list[Packed] = []
    ints: list[Packed] = []
    seeds: list[int] = []
    numbering: dict[Packed, str] = {}
    names: dict[int, str] = {}
    entered: dict[int, Node] = {}
    lines: list[str] = []

    def number(slots: Iterable[int]) -> None:
        """Number inputs in order of first use: the hash does not depend on where the trace entered them."""
        for slot in slots:
            node = entered.pop(slot, None)
            if node is not None:
                names[slot] = f"p{len(inputs)}"
                lines.append(f"p{len(inputs)}:{form_of(node).text}")
                inputs.append(node)

    for node in path:
        if id(node) not in needed:
            continue
        if node.slot in input_at:
            entered[node.slot] = node
            continue
        slots, scalars = leaves(node.args, node.kwargs)
        number(slots)
        for scalar in scalars:
            if scalar not in numbering:
                group = floats if scalar.kind == "f" else ints
                numbering[scalar] = f"{scalar.kind}{len(group)}"
                group.append(scalar)
        if node.op is not None and node.op.random:
            seeds.append(node.next_seed)
        first = len(names)
        arguments = _text((node.args, tuple(sorted(node.kwargs.items()))), names, numbering)
        for i, out in enumerate(node.outs):
            names[out.slot] = f"v{first + i}"
        results = ",".join(out.sig.text for out in node.outs)
        lines.append(f"{names[node.slot] if node.outs else ''}={canonical_name(node)}{arguments}:{results}")
        nodes.append(node)
    number(outs)
    lines.append("return " + ",".join(names[slot] for slot in outs))
    return Graph(
        nodes=tuple(nodes),
        inputs=tuple(node.slot for node in inputs),
        positions=tuple(input_at[node.slot] for node in inputs),
        sigs=tuple(form_of(node) for node in inputs),
        floats=tuple(floats),
        ints=tuple(ints),
        seeds=tuple(seeds),
        outs=outs,
        places={slot: maker[slot].frames for slot in outs},
        hash=hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32],
    )


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


def _needed(maker: dict[int, Node], outs: tuple[int, ...], input_at: Mapping[int, int] = _NONE) -> set[int]:
    """Ids of the nodes that the values at ``outs`` depend on."""
    needed: set[int] = set()
    todo = list(outs)
    while todo:
        slot = todo.pop()
        node = maker[slot]
        if id(node) not in needed:
            needed.add(id(node))
            if slot not in input_at:
                todo.extend(reads(node))
    return needed


def canonical_name(node: Node) -> str:
    """The operator's name, that of the functional twin for one in place."""
    op = node.op
    assert op is not None
    twin = getattr(op, "twin", None)
    return str(twin) if twin is not None else op.name


def reads(node: Node) -> list[int]:
    """The slots of the values that an operation reads."""
    return leaves(node.args, node.kwargs)[0]


def _text(value: Any, names: dict[int, str], scalars: dict[Packed, str]) -> str:
    if type(value) is Ref:
        return names[value.slot]
    if type(value) is Packed:
        return scalars[value]
    if type(value) is tuple:
        return "(" + ",".join(_text(v, names, scalars) for v in value) + ")"
    # 1, 1.0 and True are one constant: the dtypes of results tell them apart
    return repr(float(value)) if isinstance(value, (bool, int, float)) else repr(value)
