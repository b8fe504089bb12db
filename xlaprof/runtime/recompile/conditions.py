"""Which line of the program's text decides: the ``if`` around a branch.

Source files are read and parsed: asked only when a graph was compiled anew.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from xlaprof.recording.stacks import RawFrame, loop_line
from xlaprof.runtime.trace.program_text import parsed

if TYPE_CHECKING:
    from .graph_diff import Block

    Frames = tuple[RawFrame, ...]

_OPERATIONS = 200  # of a block that are looked at


class Decision(NamedTuple):
    """Where a path parted, as frames: the line that runs or does not, and the line that decides (may be empty)."""

    frames: Frames
    condition: Frames


def decision(block: Block, barrier: Frames) -> Decision:
    """Of operations that came (or went): the line of the program that stands for all of them, and what decides it.

    That is the outermost call which their neighbours do not share, or the innermost one that they all share if that is
    further out; of the calls from there inward the first that stands under a condition of its own.
    """
    nodes = (block.new or block.old)[:_OPERATIONS]
    stacks = [node.frames[::-1] for node in nodes]  # outermost first
    first = stacks[0]
    if not first:
        return Decision((), ())
    around = [node for node in (block.before, block.after) if node is not None]
    # A condition that the barrier stands under as well held whenever the barrier was reached: it decides nothing.
    others = [barrier, *(node.frames for node in around)]
    shared = min(_common(first, stack) for stack in stacks)
    level = min(max(shared, 1), max((_common(first, node.frames[::-1]) for node in around), default=0) + 1, len(first))
    for at in range(level, max(shared, level) + 1):
        frame = first[at - 1]
        line = _condition(frame, [f.line for stack in others for f in stack if f[::2] == frame[::2]])
        if line:
            return Decision(_from(first, at), (RawFrame(frame.file, line, frame.func),))
    frame = first[level - 1]
    loop = loop_line(frame.file, frame.line)
    ours = any(f.file == frame.file and loop_line(f.file, f.line) == loop for f in barrier)
    if loop and not ours and any(stack[:level] == first[:level] for stack in [n.frames[::-1] for n in around]):
        return Decision(_from(first, level), (RawFrame(frame.file, loop, frame.func),))
    return Decision(_from(first, level), ())


def condition(stack: Frames, other: Frames) -> Frames:
    """The line that decides whether ``stack`` is reached; empty where none is found, or ``other`` stands under it."""
    for frame in stack:
        line = _condition(frame, [f.line for f in other if f[::2] == frame[::2]])
        if line:
            return (RawFrame(frame.file, line, frame.func),)
    return ()


def choosing(stack: Frames, head: RawFrame) -> Frames:
    """The line that decides, in each pass of the loop at ``head``, whether ``stack`` is reached; empty: all reach it.

    An ``if`` around it, or one before it that goes on with the next pass or leaves the loop.
    """
    frame = next((f for f in stack if f.file == head.file and loop_line(f.file, f.line) == head.line), None)
    tree = parsed(head.file)
    if frame is None or tree is None:
        return ()
    loops = (node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.AsyncFor, ast.While)))
    loop = next((node for node in loops if node.lineno == head.line), None)
    line = _chosen(loop.body, frame.line) if loop is not None else 0
    return (RawFrame(frame.file, line, frame.func),) if line else ()


def _chosen(body: list[ast.stmt], line: int) -> int:
    """The last ``if`` of these statements, and of those within, on the way to ``line``."""
    found = 0
    for statement in body:
        if isinstance(statement, ast.If) and (statement.end_lineno or 0) < line:
            if isinstance(statement.body[-1], (ast.Continue, ast.Break)):
                found = statement.lineno
        elif statement.lineno <= line <= (statement.end_lineno or 0):
            if isinstance(statement, ast.If):
                within = statement.body if line < _start(statement.orelse) else statement.orelse
                return _chosen(within, line) or (statement.lineno if line > statement.lineno else found)
            if isinstance(statement, (ast.With, ast.AsyncWith, ast.Try)):
                return _chosen(statement.body, line) or found
            return found
    return found


def _start(body: list[ast.stmt]) -> float:
    return body[0].lineno if body else float("inf")


def _from(outermost_first: Frames, level: int) -> Frames:
    return outermost_first[:level][::-1]


def _common(one: Frames, other: Frames) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _condition(frame: RawFrame, others: list[int]) -> int:
    """The line of the innermost condition around ``frame``'s line that the lines ``others`` do not stand under."""
    tree = parsed(frame.file)
    if tree is None:
        return 0
    found = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            arms = [node.body, node.orelse]
        elif isinstance(node, ast.IfExp):
            if node.lineno <= frame.line <= (node.end_lineno or 0):
                found = max(found, node.lineno)
            continue
        else:
            continue
        for arm in arms:
            if not arm:
                continue
            first, last = arm[0].lineno, arm[-1].end_lineno or arm[-1].lineno
            if first <= frame.line <= last and not any(first <= line <= last for line in others):
                found = max(found, node.lineno)
    return found


def names(frame: RawFrame) -> list[str]:
    """Names of variables on a line."""
    tree = parsed(frame.file)
    if tree is None:
        return []
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.lineno == frame.line)
    return list(dict.fromkeys(node.id for node in found))
