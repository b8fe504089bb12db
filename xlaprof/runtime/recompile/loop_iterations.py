"""A loop of the program that was recorded into one graph, with more or fewer passes than into another.

Unrolled, each number of passes is a graph of its own: four micro-batches to an optimizer step, and two in the last one.
Told by what the forward pass records: the same operations of the same lines in both graphs, and of some of them as many
times more as of the others.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from xlaprof.recording.stacks import RawFrame, loop_line

from .conditions import choosing
from .graph_diff import token

if TYPE_CHECKING:
    from xlaprof.runtime.tape.graph import Graph
    from xlaprof.runtime.trace.trie import Node

    Frames = tuple[RawFrame, ...]

_MOSTLY = 0.5  # of the operations that are more or fewer, the share that has to agree on how many times


class Passes(NamedTuple):
    """How often a loop was passed in both graphs, and its head, with its callers."""

    old: int
    new: int
    head: Frames
    choice: Frames = ()  # the line that decides which passes do their work; empty where all do


def passes(old: Graph, new: Graph, barrier: Frames) -> Passes | None:
    """The loop that explains why ``new`` has more or fewer operations than ``old``, if one does.

    The loop that ``barrier`` is in is none: each of its passes ends a graph.
    """
    before, now = (Counter(token(node) for node in graph.nodes if _is_forward(node)) for graph in (old, new))
    if before.keys() != now.keys():  # some are in one graph only: another path, not another number of passes
        return None
    differing = {key: Fraction(now[key], count) for key, count in before.items() if now[key] != count}
    if not differing:
        return None
    ratio, agreeing = Counter(differing.values()).most_common(1)[0]
    if agreeing < _MOSTLY * len(differing):
        return None
    key = min((key for key, found in differing.items() if found == ratio), key=before.__getitem__)
    frames = next(node.frames for node in new.nodes if _is_forward(node) and token(node) == key)
    head = _head(frames, barrier)
    return Passes(before[key], now[key], head, choosing(frames, head[0])) if head else None


def chosen(old: Graph, new: Graph, node: Node, barrier: Frames) -> Passes | None:
    """The loop of which other passes do their work now, where ``node`` is of one of them: it has an argument of theirs.

    So it is where such arguments differ from pass to pass within one graph, as the number of the pass does.
    """
    head = _head(node.frames, barrier) if _is_forward(node) else ()
    choice = choosing(node.frames, head[0]) if head else ()
    if not choice:
        return None
    same = [[numbers(one) for one in graph.nodes if token(one) == token(node)] for graph in (old, new)]
    if max(len(set(found)) for found in same) < 2:
        return None
    return Passes(len(same[0]), len(same[1]), head, choice)


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
