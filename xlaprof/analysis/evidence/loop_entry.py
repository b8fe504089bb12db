"""The graph of a loop's first turn: it also holds what precedes the loop, and nothing of a turn before it."""

from __future__ import annotations

from collections.abc import Iterable

from xlaprof.analysis.diagnosis import SAME
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.looping import beside
from xlaprof.analysis.fold.tallies import CompileRecord
from xlaprof.analysis.model import Place
from xlaprof.analysis.names import head
from xlaprof.analysis.places import is_head, short
from xlaprof.analysis.principles import MOST, NAMED
from xlaprof.events import Change
from xlaprof.text.quantities import plural
from xlaprof.text.strings import enumerated

CONDITIONS = ("if ", "elif ")
LOOPS = ("for ", "async for ")  # a barrier at the head of one is a loader's


def entry(facts: Facts, record: CompileRecord, change: Change) -> int:
    """The stack of the difference if it was recorded before the barrier's loop: sums set to zero as each epoch begins.

    What the loop runs over may be a tensor, whose elements its head takes out as it begins, after all that is before
    the loop: then the head is the line. Or it lies in a tensor that the first graph has twice, and the next, of the
    same operations, once: a copy of it, of before the loop, was pending. Work that a condition of the program decides
    on, such as a copy of the best weights, is a difference of its own; and where much came as well as went, that is
    not what makes the difference.
    """
    if change.what == "aliasing":
        once = record.nth == 1 and facts.run.program_runs.get(change.against, 0) == 1
        copied = once and change.old == SAME and not (change.role or change.added or change.removed)
        return change.stack if copied and facts.names.loops(record.stack) else 0
    if change.what != "operation":
        return 0
    few, many = sorted((change.added, change.removed))
    size = max((part.size for part in record.parts if part.change == change), default=0)
    if size > MOST * many and few > MOST * many:
        return 0
    if facts.place(change.condition).acting.code.startswith(CONDITIONS):
        return 0
    if heads := _at_head(facts, record, change):
        return heads[-1]
    stacks = [stack for stack in (change.made, change.expected) if stack]
    before = (stack for stack in stacks if _precedes_loop(facts, stack, record.stack))
    if change.role or not facts.names.loops(record.stack):
        return next(before, 0)
    others = (stack for stack in stacks if not _in_turn(facts, stack, record.stack))
    return next(before, 0) or next((stack for stack in others if beside(facts.names, stack, record.stack).line), 0)


def left_pending(facts: Facts, record: CompileRecord) -> int:
    """The stack of what a turn leaves pending behind its barrier, where one of the two graphs is that of the loop's
    first turn: it holds what precedes the loop, and the other what the turn before left. 0: they differ otherwise.

    A barrier before the loop, which spares the first graph elsewhere, does not here.
    """
    sides: tuple[list[int], list[int]] = [], []
    for part in record.parts:
        change = part.change
        decided = facts.place(change.condition).acting.code.startswith(CONDITIONS)
        if change.role or change.what != "operation" or decided:
            return 0
        for side, stacks in zip(sides, (part.before, part.now), strict=True):
            side += stacks
    turns = [{_in_turn(facts, stack, record.stack) for stack in side} for side in sides]
    if not facts.names.loops(record.stack) or turns not in ([{True}, {False}], [{False}, {True}]):
        return 0
    return sides[turns.index({True})][0]


def begins_apart(change: Change) -> bool:
    """Whether one of the two graphs begins with work that the other has not, and lacks none of its."""
    return change.what == "operation" and not (change.role or change.position or (change.added and change.removed))


def begins_with_more(change: Change) -> bool:
    """Whether it is the new graph that begins with such work."""
    return begins_apart(change) and not change.removed


def is_behind(facts: Facts, stack: int, barrier: int) -> bool:
    """Whether each turn of the barrier's loop comes there behind the barrier."""
    line, ends = (place.acting for place in facts.names.bracket(stack, barrier))
    same = (line.file, line.func, line.loop) == (ends.file, ends.func, ends.loop)
    return same and 0 < line.loop < ends.line < line.line


def _in_turn(facts: Facts, stack: int, barrier: int) -> bool:
    """Whether the barrier's loop repeats it, too."""
    names = facts.names
    return head(names.loop(barrier)) in names.heads(stack) or names.is_outside(barrier, stack)


def _at_head(facts: Facts, record: CompileRecord, change: Change) -> list[int]:
    """The stacks of what the head of the barrier's loop recorded in one of the graphs, and not in the other."""
    loop = head(facts.names.loop(record.stack))
    listed = {stack for part in record.parts if part.change == change for stack in (*part.before, *part.now)}
    places = {stack: facts.place(stack) for stack in sorted(listed)}
    return [stack for stack, one in places.items() if is_head(one) and head(one) == loop]


def holder(record: CompileRecord, change: Change) -> int:
    """The program that holds what was recorded before the loop, for the ``change`` that :func:`entry` told of: the one
    before, or the new one."""
    had = change.what == "aliasing" or any(change.stack in (part.old[1], *part.before) for part in record.parts)
    return change.against if had else record.program


def entered(facts: Facts, barrier: int, program: int) -> tuple[Place, ...]:
    """The loops whose first turn has the program: that of the ``barrier``, and others. A barrier directly before each
    of them spares it; before one of them alone it would leave it to the others. None: it runs elsewhere, too.

    A loop without a line: the barrier's, where its head is not known.
    """
    ran = {stack: set(programs) for stack, programs in facts.ran_at.items() if program in programs}
    others = {stack: programs for stack, programs in ran.items() if stack != barrier}
    if any(len(programs) == 1 or not facts.names.loop(stack).line for stack, programs in others.items()):
        return ()
    return tuple(facts.names.loop(stack) for stack in (barrier, *others))


def recorded_again(facts: Facts, before: int, barrier: int, program: int) -> int:
    """The number of further turns of the barrier's loop that have the program, though what it holds from before the
    loop, ``before``, lies in no loop, and so was recorded once: a line of the loop records the same anew.

    A barrier before the loop alone spares nothing then: those turns have the graph compiled all the same.
    """
    if facts.names.loops(before):  # how often these came to the barrier's loop is not known
        return 0
    return max(0, facts.ran_at.get(barrier, []).count(program) - 1)


def saves_entry(facts: Facts, stack: int, loops: tuple[Place, ...], again: int) -> str:
    """What spares the graph that also holds what was recorded at the ``stack`` as these loops began, and ``again`` in
    as many turns of one, in a clause."""
    before = facts.place(stack)
    if is_head(before):
        return f"recorded as it began (list() of what it runs over, and {facts.words.barrier} after that, save that)"
    where = f"{each_loop(loops)}{behind_again(again)}"
    saved = f" ({facts.words.barrier} directly before {where} saves that)" if loops else ""
    return f"recorded before it{saved}"


def each_loop(loops: Iterable[Place]) -> str:
    """ "the loop", "the loop at train.py:12", "each of the loops at train.py:12 and train.py:30" """
    at = list(dict.fromkeys(short(loop) for loop in loops if loop.line))
    return f"{'each of the loops' if len(at) > 1 else 'the loop'}{' at ' * bool(at)}{enumerated(at, NAMED)}"


def behind_again(again: int) -> str:
    """Where a barrier is needed beside the one before the loop, which ``again`` turns of it make useless alone."""
    if not again:
        return ""
    have = f"{plural(again, 'more turn')} {'has' if again == 1 else 'have'} that graph"
    return f", and directly behind the line in it that records the same anew ({have}: one barrier alone spares nothing)"


def _precedes_loop(facts: Facts, stack: int, barrier: int) -> bool:
    mine, theirs = facts.names.loop(stack).acting, facts.place(barrier).acting
    if theirs.code.startswith(LOOPS):  # a loader's barrier, at the head of a loop
        same = (mine.file, mine.func) == (theirs.file, theirs.func)
        return same and mine.line < theirs.line and facts.place(stack).acting.line < theirs.line
    if not facts.names.loops(stack):  # the first loop of the program
        before, after = (place.acting for place in facts.names.bracket(stack, barrier))
        first = (before.file, before.func) == (after.file, after.func) and before.line < after.line
        return first and bool(facts.names.loops(barrier))
    return facts.names.is_outside(stack, barrier)
