"""A loop of the program that was recorded into one graph, with more or fewer iterations than into another.

Unrolled, each number of iterations is a graph of its own: four micro-batches to an optimizer step, and two in the last
one. It shows in the forward pass: both graphs have the same operations of the same lines, and some of them as many
times more as others.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING

from xlaprof.events import Loop
from xlaprof.recording.stacks import RawFrame, loop_line

from .alignment import token
from .conditions import choosing

if TYPE_CHECKING:
    from xlaprof.runtime.tape.graph import Graph
    from xlaprof.runtime.trace.trie import Node

    from .places import Places

    Frames = tuple[RawFrame, ...]


def iterations(old: Graph, new: Graph, barrier: Frames, places: Places) -> Loop | None:
    """The loop of which ``new`` has more or fewer iterations than ``old``; ``None`` where one graph took another path.

    The loop that ``barrier`` is in is none: each of its iterations ends a graph.
    """
    before, now = (Counter(token(node) for node in graph.nodes if _is_forward(node)) for graph in (old, new))
    if before.keys() != now.keys():  # some are in one graph only: another path, not another number of iterations
        return None
    differing = {key: Fraction(now[key], count) for key, count in before.items() if now[key] != count}
    if not differing:
        return None
    ratio, agreeing = Counter(differing.values()).most_common(1)[0]
    key = min((key for key, found in differing.items() if found == ratio), key=before.__getitem__)
    frames = next(node.frames for node in new.nodes if _is_forward(node) and token(node) == key)
    head = _head(frames, barrier)
    if not head:
        return None
    choice = places(choosing(frames, head[0]))
    return Loop(places(head), before[key], now[key], choice, agreeing, len(differing))


def selected(old: Graph, new: Graph, node: Node, barrier: Frames, places: Places) -> Loop | None:
    """The loop around ``node`` in which a condition selects the iterations that do their work.

    Where other iterations are selected, their numbers differ: how many there are in one graph is ``distinct``.
    """
    head = _head(node.frames, barrier) if _is_forward(node) else ()
    choice = choosing(node.frames, head[0]) if head else ()
    if not choice:
        return None
    same = [[numbers(one) for one in graph.nodes if token(one) == token(node)] for graph in (old, new)]
    distinct = max(len(set(found)) for found in same)
    return Loop(places(head), len(same[0]), len(same[1]), places(choice), distinct=distinct)


def numbers(node: Node) -> tuple[object, ...]:
    """The whole numbers among the arguments of an operation."""
    return tuple(arg for arg in node.args if isinstance(arg, int))


def _is_forward(node: Node) -> bool:
    return bool(node.frames) and not node.role and node.op is not None and node.op.func is not None


def _head(stack: Frames, barrier: Frames) -> Frames:
    """Of the loops that repeat ``stack`` the innermost that does not go around the barrier, too."""
    for at, frame in enumerate(stack):
        loop = loop_line(frame.file, frame.line)
        if not loop:
            continue
        if any(f.file == frame.file and loop_line(f.file, f.line) == loop for f in barrier):
            return ()
        return (RawFrame(frame.file, loop, frame.func), *stack[at + 1 :])
    return ()
