"""Loops that were recorded into one graph: how often a trace repeats itself.

Layers repeat lines too. But each layer reads its own weights, and each iteration of a loop that could have ended with a
barrier reads the same ones. A recurrent network in training also reads the same weights in each iteration, but there
the graph needs all iterations, for the backward pass through them.

A line deep in a model repeats more often than the loop that calls it turns: layers, time steps, the parameters of an
optimizer. The turns of a loop are those of most of its lines, each as often as its rarest operation.

A training step is a turn by itself, however few there are: an optimizer updates parameters, and after another backward
pass the same ones again. Micro-batches end in one update. The players of a GAN, and the inner steps of meta learning,
update other parameters or copies.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from xlaprof.recording.stacks import RawFrame, library
from xlaprof.runtime.trace.trie import Ref, Unrolled
from xlaprof.source_text.lines import loop_line

from .grow import INPUT

if TYPE_CHECKING:
    from xlaprof.runtime.trace.trie import Node

#: repetitions of one operation that may be a loop
_MANY = 10
_TRAINING = ("backward", "optimizer")  # roles


NONE = Unrolled()


def of(end: Node) -> Unrolled:
    """The repetition on the trace to ``end``, cached on the node."""
    if end.loops is None:
        end.loops = _find(end)._replace(step=any(map(_is_training, end.path())))
    return end.loops


def _is_training(node: Node) -> bool:
    """Whether an operation is a backward pass's or an optimizer's; of an input only its first user is known."""
    return node.op is not INPUT and node.role in _TRAINING


def _find(end: Node) -> Unrolled:
    path = end.path()
    if steps := _training_steps(path):
        frames = steps[0].frames
        loops = [loop for _, loop in reversed(_path(frames))]
        at = next((depth for depth, loop in enumerate(loops) if loop), -1)
        turns = tuple(len(steps) * (depth == at) for depth in range(len(loops)))
        return Unrolled(len(steps), frames, _span(steps) // (len(steps) - 1), shared=True, turns=turns, trains=True)
    seen: dict[Any, list[Node]] = {}
    for node in path:
        if node.frames and node.op is not None and node.op.func is not None:
            seen.setdefault((node.op, node.frames), []).append(node)
    many = [nodes for nodes in seen.values() if len(nodes) >= _MANY]
    if not many:
        nodes = max(seen.values(), key=len, default=[])
        return _unrolled(nodes, end, shared=False) if nodes else Unrolled()
    # A line may record an operation twice per iteration: the most frequent count is the number of iterations.
    sharing = [shared for nodes in many if len(shared := _sharing(nodes)) >= _MANY]
    chosen = sharing or many
    counts = Counter(len(nodes) for nodes in chosen)
    count = max(counts, key=lambda n: (counts[n], -n))
    nodes = max((nodes for nodes in chosen if len(nodes) == count), key=_span)
    return _unrolled(nodes, end, shared=bool(sharing) and not _is_differentiated(nodes, end))


def _training_steps(path: list[Node]) -> list[Node]:
    """The updates of the parameter that was updated in the fewest steps, one of each step; empty: fewer than two."""
    roots: dict[int, int] = {}  # slot -> that of the input which it is a new value of
    updates: dict[int, list[Node]] = {}
    differentiated = 0
    for node in path:
        if node.role == "backward":
            differentiated = node.depth
        if node.op is INPUT:
            roots[node.slot] = node.slot
        elif node.role == "optimizer" and node.op is not None and getattr(node.op, "writes", ()) == (0,):
            written = node.args[0]
            root = roots.get(written.slot) if type(written) is Ref else None
            if root is not None:
                roots[node.slot] = root
                steps = updates.setdefault(root, [])
                if not steps or steps[-1].depth < differentiated:
                    steps.append(node)
    least = min(updates.values(), key=len, default=[])
    return least if len(least) > 1 and len({node.frames for node in least}) == 1 else []


def _unrolled(nodes: list[Node], end: Node, *, shared: bool) -> Unrolled:
    frames = nodes[0].frames
    turns = _turns(frames, end) if len(nodes) >= _MANY else ()
    learns = any(_is_training(node) for node in end.path() if nodes[0].depth < node.depth < nodes[-1].depth)
    return Unrolled(len(nodes), frames, _span(nodes) // max(1, len(nodes) - 1), shared, turns, learns=learns)


def _turns(frames: tuple[RawFrame, ...], end: Node) -> tuple[int, ...]:
    """How often the loop around each frame turned each time, innermost first; 0: no loop."""
    path = _path(frames)
    #: line in the loop -> operation -> times, without those of loops further in
    recorded: list[dict[int, Counter[Any]]] = [{} for _ in path]
    for node in end.path():
        if not node.frames or node.op is None or node.op.func is None:
            continue
        there = _path(node.frames)
        inner = max((depth for depth, (_, loop) in enumerate(there) if loop), default=-1)
        for depth, ((mine, loop), (theirs, around)) in enumerate(zip(path, there, strict=False)):
            if depth == inner and (mine.file, mine.func, loop) == (theirs.file, theirs.func, around):
                recorded[depth].setdefault(theirs.line, Counter())[node.op] += 1
            if mine != theirs:
                break
    turns: list[int] = []
    before = 1  # turns of the loops further out: each of them ran the inner ones anew
    for lines in recorded:
        times = Counter(min(operations.values()) for operations in lines.values())
        often = max(times, key=lambda n: (times[n], -n), default=0)
        turns.append(often // before)
        before = max(before, often)
    return tuple(reversed(turns))


@lru_cache(4096)
def _path(frames: tuple[RawFrame, ...]) -> tuple[tuple[RawFrame, int], ...]:
    """The frames of a stack, libraries' too, outermost first, each with the line of the loop around it."""
    under: dict[int, list[tuple[RawFrame, int]]] = {}
    for one in library(frames):
        loop = 0 if one.drawn else loop_line(one.frame.file, one.frame.line)
        under.setdefault(one.depth, []).append((one.frame, loop))
    path = []
    for depth, frame in enumerate(frames):
        path += [*under.get(depth, ()), (frame, loop_line(frame.file, frame.line))]
    return tuple(reversed(path))


def _is_differentiated(nodes: list[Node], end: Node) -> bool:
    """Does a backward pass follow that is long enough to go through all iterations?"""
    last = nodes[-1].depth
    return 2 * sum(node.role == "backward" and node.depth > last for node in end.path()) >= _span(nodes)


def _span(nodes: list[Node]) -> int:
    return nodes[-1].depth - nodes[0].depth


def _sharing(nodes: list[Node]) -> list[Node]:
    """Those that one value is an argument of: one layer's, where a line runs several layers in each iteration."""
    over: dict[int, list[Node]] = {}
    for node in nodes:
        if node.role == "backward":
            continue  # it goes through what the forward pass repeated
        for slot in {arg.slot for arg in node.args if type(arg) is Ref}:
            over.setdefault(slot, []).append(node)
    return max(over.values(), key=len, default=[])
