"""The program's text around a line: the condition that decides whether it runs, the variables on it.

Source files are read and parsed, so it is used only when a graph was compiled.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from xlaprof.recording.stacks import RawFrame, is_library, split, whole
from xlaprof.runtime.trace.program_text import parsed
from xlaprof.source_text.lines import loop_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xlaprof.runtime.tape.known_traces import KnownTrace

    from .alignment import Unmatched

    Frames = tuple[RawFrame, ...]

_OPERATIONS = 200  # inspected per block


def decision(block: Unmatched, barrier: Frames, without: Iterable[Frames] = ()) -> tuple[Frames, Frames]:
    """The line that represents all operations of ``block``, and the line that decides whether it runs (may be empty).

    ``without``: lines of the graph that lacks these operations: a condition around one of them held there, too.
    The first line is the outermost call that the neighbours do not share, or the first in which the operations differ,
    if that is further out. From there inward, the first call under a condition of its own is taken. Operations of
    training follow those of the forward pass, where there are any.
    """
    nodes = (block.new or block.old)[:_OPERATIONS]
    nodes = tuple(node for node in nodes if not node.role) or nodes
    stacks = [whole(node.frames)[::-1] for node in nodes]  # outermost first
    first = stacks[0]
    if not first:
        return (), ()
    around = [node for node in (block.before, block.after) if node is not None]
    # A condition around the barrier too held whenever the barrier was reached: it decides nothing.
    others = [whole(barrier), *map(whole, dict.fromkeys((*(node.frames for node in around), *without)))]
    shared = min(common_length(first, stack) for stack in stacks)
    neighbours = [others[0][::-1], *(whole(node.frames)[::-1] for node in around)]
    level = min(shared, max(common_length(first, stack) for stack in neighbours)) + 1
    level = min(level, len(first))
    for at in range(level, max(shared, level) + 1):
        frame = first[at - 1]
        line = _condition(frame, *others)
        if line:
            return split(first[:at][::-1]), (RawFrame(frame.file, line, frame.func),)
    frame = first[level - 1]
    loop = loop_line(frame.file, frame.line)
    has_barrier = any(f.file == frame.file and loop_line(f.file, f.line) == loop for f in others[0])
    if loop and not has_barrier and any(stack[:level] == first[:level] for stack in neighbours):
        return split(first[:level][::-1]), (RawFrame(frame.file, loop, frame.func),)
    return split(first[:level][::-1]), ()


def condition(stack: Frames, other: Frames) -> Frames:
    """The line that decides whether ``stack`` is reached; empty if none is found, or ``other`` is under it too."""
    for frame in whole(stack):
        line = _condition(frame, whole(other))
        if line:
            return (RawFrame(frame.file, line, frame.func),)
    return ()


def condition_in_loop(stack: Frames, head: RawFrame, *, expressions: bool = False) -> Frames:
    """The line that decides, in each iteration of the loop at ``head``, whether ``stack`` is reached; empty: always.

    It is an ``if`` around it, or one before it that leaves the pass; with ``expressions`` also a conditional expression
    on the line itself.
    """
    frame = next((f for f in whole(stack) if f.file == head.file and loop_line(f.file, f.line) == head.line), None)
    tree = parsed(head.file)
    if frame is None or tree is None:
        return ()
    loops = (node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.AsyncFor, ast.While)))
    loop = next((node for node in loops if node.lineno == head.line), None)
    arms = [arm for arm in _arms(tree) if arm.first <= frame.line <= arm.last]
    if expressions and any(arm.is_expression for arm in arms):
        return (RawFrame(frame.file, frame.line, frame.func),)
    line = max((arm.condition for arm in arms if loop is not None and loop.lineno < arm.condition), default=0)
    return (RawFrame(frame.file, line, frame.func),) if line else ()


def condition_below(stack: Frames, head: RawFrame, without: Iterable[Frames] = ()) -> Frames:
    """The same in the program's functions that each iteration calls, the outermost first: one may return early.

    ``without``: lines that each iteration records.
    """
    frames = whole(stack)
    at = next((i for i, f in enumerate(frames) if f.file == head.file and loop_line(f.file, f.line) == head.line), 0)
    others = [*map(whole, without)]
    for frame in reversed(frames[:at]):
        line = 0 if is_library(frame.file, None) else _condition(frame, *others)
        if line:
            return (RawFrame(frame.file, line, frame.func),)
    return ()


def common_length(one: tuple[Any, ...], other: tuple[Any, ...]) -> int:
    """Length of the longest common beginning."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def of_other_parts(these: Iterable[KnownTrace], others: Iterable[KnownTrace]) -> set[int]:
    """Ids of nodes of ``these`` traces of one barrier that another part of the program recorded first, with its lines.

    They lie nearer to the barrier of that part: in its loop, or below the call that it is below.
    """
    mine = {id(node): (node, known.place) for known in these for node in known.graph.nodes}
    found = set()
    for other in others:
        for one in mine.keys() & set(map(id, other.graph.nodes)):
            node, place = mine[one]
            if _nearness(node.frames, other.place) > _nearness(node.frames, place):
                found.add(one)
    return found


@lru_cache(maxsize=4096)
def _nearness(stack: Frames, other: Frames) -> tuple[int, bool]:
    """How many calls two stacks share from the outermost on, and whether their lines below lie in one loop."""
    one, two = whole(stack)[::-1], whole(other)[::-1]
    shared = common_length(one, two)
    if shared >= min(len(one), len(two)):
        return shared, False
    a, b = one[shared], two[shared]
    head = loop_line(a.file, a.line)
    return shared, (a.file, a.func) == (b.file, b.func) and head > 0 and head == loop_line(b.file, b.line)


def _condition(frame: RawFrame, *others: Frames) -> int:
    """Line of the innermost condition around ``frame``'s line that is not around ``others``, or 0."""
    tree = parsed(frame.file)
    lines = [f.line for stack in others for f in stack if (f.file, f.func) == (frame.file, frame.func)]
    return max(
        (
            arm.condition
            for arm in (_arms(tree) if tree is not None else ())
            if arm.first <= frame.line <= arm.last
            and (arm.is_expression or not any(arm.first <= line <= arm.last for line in lines))
        ),
        default=0,
    )


class _Arm(NamedTuple):
    """Lines of one branch of an ``if``; for a conditional expression, all of its lines.

    What follows an ``if`` that leaves the pass or the function is a branch of it, too. One that raises an error is a
    check, which decides nothing.
    """

    condition: int
    first: int
    last: int
    is_expression: bool = False


@lru_cache(maxsize=16)
def _arms(tree: ast.Module) -> tuple[_Arm, ...]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            found.append(_Arm(node.lineno, node.lineno, node.end_lineno or 0, is_expression=True))
        for _, body in ast.iter_fields(node):
            if not isinstance(body, list) or not body or not isinstance(body[0], ast.stmt):
                continue
            if isinstance(node, ast.If):
                found.append(_arm(node, body))
            leaving = (at for at, one in enumerate(body[:-1]) if isinstance(one, ast.If) and _leaves(one))
            found += [_arm(body[at], body[at + 1 :]) for at in leaving]
    return tuple(found)


def _arm(condition: ast.stmt, body: list[ast.stmt]) -> _Arm:
    return _Arm(condition.lineno, body[0].lineno, body[-1].end_lineno or body[-1].lineno)


def _leaves(choice: ast.If) -> bool:
    return isinstance(choice.body[-1], (ast.Continue, ast.Break, ast.Return))


def names(frame: RawFrame) -> tuple[str, ...]:
    """Names of variables on a line."""
    tree = parsed(frame.file)
    return _names(tree).get(frame.line, ()) if tree is not None else ()


@lru_cache(maxsize=16)
def _names(tree: ast.Module) -> dict[int, tuple[str, ...]]:
    found: dict[int, dict[str, None]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.setdefault(node.lineno, {})[node.id] = None
    return {line: tuple(some) for line, some in found.items()}
