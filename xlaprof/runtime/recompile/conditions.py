"""The program's text around a line: the condition that decides whether it runs, the variables on it.

Source files are read and parsed, so it is used only when a graph was compiled.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from xlaprof.recording.stacks import RawFrame, loop_line, split, whole
from xlaprof.runtime.trace.program_text import parsed

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def condition_in_loop(stack: Frames, head: RawFrame, expressions: bool = False) -> Frames:
    """The line that decides, in each iteration of the loop at ``head``, whether ``stack`` is reached; empty: always.

    It is an ``if`` around it, or one before it that ends in ``continue`` or ``break``; with ``expressions`` also a
    conditional expression on the line itself.
    """
    frame = next((f for f in whole(stack) if f.file == head.file and loop_line(f.file, f.line) == head.line), None)
    tree = parsed(head.file)
    if frame is None or tree is None:
        return ()
    loops = (node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.AsyncFor, ast.While)))
    loop = next((node for node in loops if node.lineno == head.line), None)
    line = _last_condition(loop.body, frame.line) if loop is not None else 0
    if expressions and any(arm.is_expression and arm.first <= frame.line <= arm.last for arm in _arms(tree)):
        line = frame.line
    return (RawFrame(frame.file, line, frame.func),) if line else ()


def _last_condition(body: list[ast.stmt], line: int) -> int:
    """Line of the last ``if`` on the way to ``line``, in these statements and inside them; 0: none."""
    found = 0
    for statement in body:
        if isinstance(statement, ast.If) and (statement.end_lineno or 0) < line:
            if isinstance(statement.body[-1], (ast.Continue, ast.Break)):
                found = statement.lineno
        elif statement.lineno <= line <= (statement.end_lineno or 0):
            if isinstance(statement, ast.If):
                within = statement.body if line < _start(statement.orelse) else statement.orelse
                return _last_condition(within, line) or (statement.lineno if line > statement.lineno else found)
            if isinstance(statement, (ast.With, ast.AsyncWith, ast.Try)):
                return _last_condition(statement.body, line) or found
            return found
    return found


def _start(body: list[ast.stmt]) -> float:
    return body[0].lineno if body else float("inf")


def common_length(one: tuple[Any, ...], other: tuple[Any, ...]) -> int:
    """Length of the longest common beginning."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


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
    """Lines of one branch of an ``if``; for a conditional expression, all of its lines."""

    condition: int
    first: int
    last: int
    is_expression: bool


@lru_cache(maxsize=16)
def _arms(tree: ast.Module) -> tuple[_Arm, ...]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            found.append(_Arm(node.lineno, node.lineno, node.end_lineno or 0, True))
        elif isinstance(node, ast.If):
            for arm in (node.body, node.orelse):
                if arm:
                    found.append(_Arm(node.lineno, arm[0].lineno, arm[-1].end_lineno or arm[-1].lineno, False))
    return tuple(found)


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
