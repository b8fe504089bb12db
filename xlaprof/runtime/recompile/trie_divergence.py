"""Where a trace left the trie, for a graph that cannot be compared with another.

The new edge is the difference; its siblings are the operations recorded there before.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from xlaprof.events import Difference, GraphDiff, Operation
from xlaprof.runtime.trace.trie import Divergence, Node, Packed, Ref

from .places import line_of, operation, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xlaprof.runtime.trace.ops import Op

    from .places import Places


def departure(places: Places, divergence: Divergence | None, end: Node, outs: tuple[int, ...]) -> GraphDiff | None:
    """How the trace to ``end`` with live outputs ``outs`` differs from all known ones; ``None``: it is the first.

    ``divergence`` is its first new edge, ``None`` when every edge was known.
    """
    if divergence is None:
        found = _known_path(places, end, outs)
        return GraphDiff(common=end.depth, left=found) if found is not None else None
    parent, node = divergence.parent, divergence.node
    siblings = [edge for edge in parent.edges.values() if edge is not node]
    if siblings:
        match = _closest(siblings, node)
        return GraphDiff(common=match.new.depth - 1, left=between(places, match))
    if parent.parent is None or not parent.plans:
        return None  # the first trace, or one that goes on after a read
    came = _consumer(node)
    barrier = Operation("barrier", places(parent.frames))
    found = Difference("operation", "barrier", operation(came), "", barrier, places.operation(came))
    return GraphDiff(common=parent.depth, left=found)


class Match(NamedTuple):
    """Two edges out of one node, known and new, and the operations that follow (``expected``, ``came``)."""

    old: Node
    new: Node
    expected: Node
    came: Node


def _closest(siblings: list[Node], node: Node) -> Match:
    """The known edge most like ``node``, and the edge of the new trace beside it.

    The inputs of an operation are edges of their own. Another part of the program may have the same first input by
    chance, and differ only from the second on. A reader rather expects the same operation with other inputs, whose path
    left this one at an earlier input.
    """
    came = _consumer(node)
    matches = [Match(sibling, node, _consumer(sibling, came.op), came) for sibling in siblings]
    at = node.parent
    while at is not None and at.parent is not None and _is_input(at):
        known = [(edge, _consumer(edge, came.op)) for edge in at.parent.edges.values() if edge is not at]
        matches += [Match(edge, at, expected, came) for edge, expected in known if expected.op is came.op]
        at = at.parent
    return max(matches, key=_likeness)


def _is_input(node: Node) -> bool:
    return node.op is not None and node.op.func is None


def _consumers(node: Node) -> Iterator[Node]:
    """The operations that follow an input: the first that are not inputs, the latest path first."""
    if not _is_input(node) or not node.edges:
        yield node
        return
    for edge in reversed(node.edges.values()):
        yield from _consumers(edge)


def _consumer(node: Node, like: Op | None = None) -> Node:
    """The operation that follows the input ``node``, or is ``node``: one of operator ``like``, else the latest."""
    seen = list(islice(_consumers(node), 100))
    return next((consumer for consumer in seen if consumer.op is like), seen[0])


def _likeness(match: Match) -> tuple[int, int, int, int]:
    """How alike the edges are: the same operation, the same line, few differences, recent use."""
    old, new, expected, came = match
    return (
        int(expected.op is came.op) + int(old.op is new.op),
        int(line_of(expected) == line_of(came)),
        -len(_differences(old, new)),
        old.last_used,
    )


def _differences(old: Node, new: Node) -> list[tuple[str, str, str, str]]:
    """``(kind, argument, old, new)`` of each argument in which two nodes of one operation differ."""
    if old.op is not new.op or old.op is None:
        return []
    if not isinstance(old.key, tuple):  # an input
        what = "shape" if old.key.shape != new.key.shape else "dtype" if old.key.dtype != new.key.dtype else "sharding"
        return [(what, "", old.key.text, new.key.text)]
    found = []
    names = getattr(old.op, "names", ())
    pairs = [
        (names[i] if i < len(names) else str(i), a, b) for i, (a, b) in enumerate(zip(old.args, new.args, strict=False))
    ]
    pairs += [(name, old.kwargs.get(name), new.kwargs.get(name)) for name in {**old.kwargs, **new.kwargs}]
    for name, a, b in pairs:
        if a == b and type(a) is type(b):
            continue
        if name == getattr(new.op, "read", None):  # decided by values, not by the program's text
            found.append(("size", name, show(a), show(b)))
            continue
        kinds = {type(a), type(b)}
        what = "aliasing" if kinds == {Ref} else "scalar" if Packed in kinds else "argument"
        found.append((what, name, show(a), show(b)))
    if not found and old.key != new.key:
        found.append(("argument", "arguments", repr(old.key[1:]), repr(new.key[1:])))
    return found


def between(places: Places, match: Match) -> Difference:
    """The difference between two edges out of one node."""
    old, new, expected, came = match
    differences = _differences(old, new)
    kind, argument, before, after = "operation", "", operation(expected), operation(came)
    if differences and came.op is expected.op:
        kind, argument, before, after = differences[0]
    return Difference(kind, before, after, argument, places.operation(expected), places.operation(came))


def _known_path(places: Places, end: Node, outs: tuple[int, ...]) -> Difference | None:
    others = [key for key in end.plans if key != outs]
    if others:
        # with several devices, keys also have the shardings of outputs
        keys = others[-1], outs
        old, outs = (tuple(k for k in key if type(k) is int) for key in keys)
        if old == outs:
            was, now = (", ".join(str(k) for k in key if k is not None and type(k) is not int) for key in keys)
            barrier = Operation("barrier", places(end.frames))
            return Difference(
                "sharding", was or "XLA's choice", now or "XLA's choice", "the live outputs", barrier, barrier
            )
        missing, extra = sorted(set(old) - set(outs)), sorted(set(outs) - set(old))
        changed = {out.slot: node for node in end.path() for out in node.outs}
        made = places.operation(changed.get((extra or missing or [end.slot])[0], end))
        return Difference(
            "outputs", f"{len(old)} live outputs", f"{len(outs)} live outputs", "", made, made, held=bool(extra)
        )
    if end.edges:
        following = _consumer(next(iter(end.edges.values())))
        barrier = Operation("barrier", places(end.frames))
        return Difference("operation", operation(following), "barrier", "", places.operation(following), barrier)
    return None
