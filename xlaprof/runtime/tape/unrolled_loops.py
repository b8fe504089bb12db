"""Loops that were recorded into one graph: how often a trace repeats itself.

Layers repeat lines too. But each layer reads its own weights, and each iteration of a loop that could have ended with a
barrier reads the same ones. A recurrent network in training also reads the same weights in each iteration, but there
the graph needs all iterations, for the backward pass through them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from xlaprof.runtime.trace.trie import Ref, Unrolled

if TYPE_CHECKING:
    from xlaprof.runtime.trace.trie import Node

#: repetitions of one operation that may be a loop
_MANY = 10


NONE = Unrolled()


def of(end: Node) -> Unrolled:
    """The repetition on the trace to ``end``, cached on the node."""
    if end.loops is None:
        end.loops = _find(end)
    return end.loops


def _find(end: Node) -> Unrolled:
    seen: dict[Any, list[Node]] = {}
    for node in end.path():
        if node.frames and node.op is not None and node.op.func is not None:
            seen.setdefault((node.op, node.frames), []).append(node)
    many = [nodes for nodes in seen.values() if len(nodes) >= _MANY]
    if not many:
        nodes = max(seen.values(), key=len, default=[])
        return _unrolled(nodes, shared=False) if nodes else Unrolled()
    # A line may record an operation twice per iteration: the most frequent count is the number of iterations.
    sharing = [nodes for nodes in many if _shares(nodes)]
    chosen = sharing or many
    counts = Counter(len(nodes) for nodes in chosen)
    count = max(counts, key=lambda n: (counts[n], -n))
    nodes = max((nodes for nodes in chosen if len(nodes) == count), key=_span)
    return _unrolled(nodes, shared=bool(sharing) and not _is_differentiated(nodes, end))


def _unrolled(nodes: list[Node], *, shared: bool) -> Unrolled:
    return Unrolled(len(nodes), nodes[0].frames, _span(nodes) // max(1, len(nodes) - 1), shared)


def _is_differentiated(nodes: list[Node], end: Node) -> bool:
    """Does a backward pass follow that is long enough to go through all iterations?"""
    last = nodes[-1].depth
    return 2 * sum(node.role == "backward" and node.depth > last for node in end.path()) >= _span(nodes)


def _span(nodes: list[Node]) -> int:
    return nodes[-1].depth - nodes[0].depth


def _shares(nodes: list[Node]) -> bool:
    """Is one value an argument each time?"""
    common: set[int] | None = None
    for node in nodes:
        slots = {arg.slot for arg in node.args if type(arg) is Ref}
        common = slots if common is None else common & slots
        if not common:
            return False
    return True
