"""A loop of the program that was recorded into two graphs with different numbers of iterations.

A loop is unrolled, so each number of iterations is another graph: four micro-batches per optimizer step, and two in the
last. The forward pass shows it: both graphs have the same operations of the same lines, and some of them more often, by
one common factor.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from xlaprof.events import Loop
from xlaprof.recording.stacks import RawFrame, split, whole
from xlaprof.runtime.trace.trie import Ref
from xlaprof.source_text.lines import loop_line

from .alignment import Unmatched, token
from .conditions import condition_below, condition_in_loop

_REPEATED = 2  # passes: fewer are no loop's

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from xlaprof.runtime.tape.graph import Graph
    from xlaprof.runtime.trace.trie import Node

    from .places import Places

    Frames = tuple[RawFrame, ...]
    Token = tuple[Any, ...]


def iterations(old: Graph, new: Graph, barrier: Frames, places: Places) -> Loop | None:
    """The loop with more or fewer iterations in ``new`` than in ``old``; ``None`` where one graph took another path.

    A loop around ``barrier`` does not count: each of its iterations ends a graph. One that trains other parameters in
    each iteration goes over a model's layers, of which there are always as many: where a function of theirs may return
    early, that is what decides. What two parts of the program record alike has the calls of the first, in some
    passes: then the lines alone are compared.
    """
    found = (_iterations(old, new, barrier, places, of) for of in (token, _line))
    return next((loop for loop in found if loop is not None), None)


def _iterations(old: Graph, new: Graph, barrier: Frames, places: Places, of: Callable[[Node], Token]) -> Loop | None:
    before, now = (Counter(map(of, _forward(graph))) for graph in (old, new))
    if before.keys() != now.keys():  # another path, not another number of iterations
        return None
    differing = {key: Fraction(now[key], count) for key, count in before.items() if now[key] != count}
    if not differing:
        return None
    ratio, agreeing = Counter(differing.values()).most_common(1)[0]
    key = min((key for key, found in differing.items() if found == ratio), key=before.__getitem__)
    frames = next(node.frames for node in _forward(new) if of(node) == key)
    head = _head(frames, barrier)
    if not head or _same_passes(old, new, head, of) >= max(before[key], now[key]):
        return None
    choice = condition_in_loop(frames, whole(head)[0])
    more = new if now[key] > before[key] else old
    if not choice and _train_their_own(more, of, differing.keys(), max(before[key], now[key])):
        choice = condition_below(frames, whole(head)[0])
    return Loop(places(head), before[key], now[key], places(choice), agreeing, len(differing))


def _forward(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if _is_forward(node)]


def _line(node: Node) -> Token:
    """As :func:`token`, whoever calls it."""
    return token(node)[0], whole(node.frames)[0][:2]


def _train_their_own(graph: Graph, of: Callable[[Node], Token], tokens: Collection[Token], passes: int) -> bool:
    """Whether a line gives its operation other parameters, which an optimizer updates, in each of so many passes."""
    trained = {arg.slot for node in graph.nodes if node.role == "optimizer" for arg in node.args if type(arg) is Ref}
    given: dict[Token, list[frozenset[int]]] = {}
    for node in _forward(graph):
        if of(node) in tokens:
            slots = frozenset(arg.slot for arg in node.args if type(arg) is Ref)
            given.setdefault(of(node), []).append(slots & trained)
    return any(len(set(own)) == len(own) >= passes and all(own) for own in given.values())


def choices(old: Graph, new: Graph, blocks: tuple[Unmatched, ...], barrier: Frames, places: Places) -> Loop | None:
    """The loop of as many iterations in both graphs in which a condition decides what each of them records."""
    nodes = [node for block in blocks for node in (*block.old, *block.new) if _is_forward(node)]
    head = _head(nodes[0].frames, barrier) if nodes else ()
    passes = _same_passes(old, new, head) if head else 0
    if passes < _REPEATED:
        return None
    # what all passes record may have no partner either, where it stands between other choices than before
    inside = [node for node in nodes if _is_inside(node, head)]
    at = whole(head)[0]
    chosen = Counter(condition_in_loop(node.frames, at, expressions=True) for node in inside)
    if not any(chosen):
        every = _same_lines(old, new, head, passes)
        chosen = Counter(condition_below(node.frames, at, every) for node in inside)
    chosen.pop((), None)
    choice = next((line for line, _ in chosen.most_common(1)), ())
    return Loop(places(head), passes, passes, places(choice), len(inside), len(nodes)) if choice else None


def _is_inside(node: Node, head: Frames) -> bool:
    """Whether the loop repeats it."""
    file, line = whole(head)[0][:2]
    return any(frame.file == file and loop_line(file, frame.line) == line for frame in whole(node.frames))


def _same_passes(old: Graph, new: Graph, head: Frames, of: Callable[[Node], Token] = token) -> int:
    """How often lines of the loop were recorded that both graphs recorded as often: its passes, if any are the same."""
    return max(_recorded_alike(old, new, head, of).values(), default=0)


def _same_lines(old: Graph, new: Graph, head: Frames, passes: int) -> set[Frames]:
    """Lines that each pass of the loop records, in both graphs."""
    alike = _recorded_alike(old, new, head)
    return {node.frames for node in new.nodes if _is_forward(node) and alike.get(token(node)) == passes}


def _recorded_alike(old: Graph, new: Graph, head: Frames, of: Callable[[Node], Token] = token) -> dict[Token, int]:
    """Operations of the loop that both graphs recorded as often, and how often."""
    before, now = (Counter(of(node) for node in _forward(graph) if _is_inside(node, head)) for graph in (old, new))
    return {key: count for key, count in before.items() if now[key] == count}


def selected(old: Graph, new: Graph, node: Node, barrier: Frames, places: Places) -> Loop | None:
    """The loop around ``node`` in which a condition selects the iterations that record it.

    ``distinct`` of it: how many different numbers one graph has there, for the selected iterations.
    """
    head = _head(node.frames, barrier) if _is_forward(node) else ()
    choice = condition_in_loop(node.frames, whole(head)[0]) if head else ()
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
    """The innermost loop that repeats ``stack``; empty if the barrier is in it too."""
    frames = whole(stack)
    for at, frame in enumerate(frames):
        loop = loop_line(frame.file, frame.line)
        if not loop:
            continue
        if any(f.file == frame.file and loop_line(f.file, f.line) == loop for f in whole(barrier)):
            return ()
        return split((RawFrame(frame.file, loop, frame.func), *frames[at + 1 :]))
    return ()
