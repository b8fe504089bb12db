"""Loops that were recorded into one graph: how often a trace repeats itself.

Layers repeat lines too. They differ from the iterations of a loop that could have ended with a barrier in what they
read: each layer its own weights, each iteration the same. A recurrent network that is trained reads the same weights in
each iteration as well, but a backward pass through all of them follows in the graph and needs them to be there.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from xlaprof.runtime.trace.trie import Ref, Unrolled

if TYPE_CHECKING:
    from xlaprof.runtime.trace.trie import Node

#: times from which on it is looked at more closely
_MANY = 10


NONE = Unrolled()


def of(end: Node) -> Unrolled:
    """The repetition on the trace to ``end``. Looked for once for each end."""
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
    # A line may record an operation twice in an iteration: there are as many as most operations are repeated.
    sharing = [nodes for nodes in many if _shares(nodes)]
    chosen = sharing or many
    counts = Counter(len(nodes) for nodes in chosen)
    count = max(counts, key=lambda n: (counts[n], -n))
    nodes = max((nodes for nodes in chosen if len(nodes) == count), key=_span)
    return _unrolled(nodes, shared=bool(sharing) and not _is_differentiated(nodes, end))


def _unrolled(nodes: list[Node], *, shared: bool) -> Unrolled:
    return Unrolled(len(nodes), nodes[0].frames, _span(nodes) // max(1, len(nodes) - 1), shared)


def _is_differentiated(nodes: list[Node], end: Node) -> bool:
    """Whether a backward pass follows that is about as long as all iterations: it goes through each of them."""
    last = nodes[-1].depth
    return 2 * sum(node.role == "backward" and node.depth > last for node in end.path()) >= _span(nodes)


def _span(nodes: list[Node]) -> int:
    return nodes[-1].depth - nodes[0].depth


def _shares(nodes: list[Node]) -> bool:
    """Whether one value is an argument each time."""
    common: set[int] | None = None
    for node in nodes:
        slots = {arg.slot for arg in node.args if type(arg) is Ref}
        common = slots if common is None else common & slots
        if not common:
            return False
    return True
