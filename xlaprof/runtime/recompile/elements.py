"""Operations that take single numbers out of tensors, of which alone what the host reads is computed; or that take out
the rows that it reads."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from xlaprof.runtime.tape.graph import reads

if TYPE_CHECKING:
    from xlaprof.runtime.tape.known_traces import KnownTrace
    from xlaprof.runtime.trace.trie import Node

_TAKES = "aten::select"


def elements(trace: KnownTrace) -> frozenset[int]:
    """Ids of the nodes that take an element out of a tensor, or the row that it is in, for a read that ends ``trace``.

    So do those of a row that is read as it was taken out. Empty where what is read is computed of a tensor of more than
    one number: the host would have to compute that, too.
    """
    graph = trace.graph
    if trace.trigger != "read":
        return frozenset()
    maker = {out.slot: node for node in graph.nodes for out in node.outs}
    shapes = {slot: sig.shape for slot, sig in zip(graph.inputs, graph.sigs, strict=True)}
    shapes |= {out.slot: out.size for node in graph.nodes for out in node.outs}
    found = set[int]()
    seen, slots = set[int](), list(graph.outs)
    while slots:
        slot = slots.pop()
        node = maker.get(slot)
        row_read = slot in graph.outs and node is not None and _takes(node)
        if prod(shapes[slot]) != 1 and not row_read:
            return frozenset()
        if node is None or slot in seen:
            continue
        seen.add(slot)
        if not _takes(node):
            slots += reads(node)
            continue
        row: Node | None = node
        while row is not None and _takes(row):
            found.add(id(row))
            row = maker.get(reads(row)[0])
    return frozenset(found)


def _takes(node: Node) -> bool:
    return node.op is not None and node.op.aten == _TAKES
