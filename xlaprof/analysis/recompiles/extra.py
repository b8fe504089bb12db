"""Which compiles are unnecessary, and which of them have one cause.

Warm-up is necessary: the first compile at a barrier (a new phase of the program, such as evaluation, has a barrier
of its own), and a first graph that is replaced within the first steps and never comes back, or only with another
optimizer that makes its state. So are graphs that a barrier of their own makes in advance, and one for each of the few
stages of a training whose input grows: what runs long was worth it.
Where graphs go on being replaced for the same reason, that was no warm-up. A read in a loop that has barriers needs a
graph of its own, which is unnecessary from the first.
"""

from __future__ import annotations

from collections import Counter
from math import ceil, gcd
from typing import NamedTuple

from xlaprof.analysis.evidence.dynamic_size_ops import is_sized
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.looping import GROWTHS, grows, innermost, is_outside, visits_per_pass
from xlaprof.analysis.fold.tallies import CompileRecord
from xlaprof.analysis.model import Place
from xlaprof.analysis.recompiles.shapes import axes, dims
from xlaprof.events import Change

EARLY = 3  # visits of a barrier in which its first graph may still be replaced
_HABIT = 3  # reads in the loop, or graphs of one read outside it, that are no accident
_BUCKETS = 8  # sizes that a program pads to, at most
_STAGES, _LONG = 3, 20  # sizes of an input that each stay for so many steps, at most
_TASKS = 4  # modules that take turns by design, at most
_UNIT = 8  # what they have in common, at least, unless they are powers of two from here on:
_SMALLEST = 4
_SETTLING = frozenset({"operation", "inputs", "outputs", "aliasing", "sharding"})

#: subject of the change of a read that cuts a step in two
READ = "read before the barrier"


class Extra(NamedTuple):
    """A compile that should not have been, why, and where to say so."""

    record: CompileRecord
    change: Change
    place: Place


class Group(NamedTuple):
    """Compiles of one cause."""

    sort: str  # shape | dtype | size | scalar | argument | operation | outputs | inputs | aliasing | sharding | evicted
    name: str  # distinguishes it from others at its line
    place: Place
    extras: tuple[Extra, ...]

    @property
    def first(self) -> Change:
        """What changed at first."""
        return self.extras[0].change

    @property
    def cost_s(self) -> float:
        """Seconds that went into these compiles."""
        return sum(extra.record.dur for extra in self.extras) / 1e9


def groups(facts: Facts) -> list[Group]:
    """The extra compiles by line and cause, in the order in which they first came."""
    found: dict[tuple[str, int, str, str], list[Extra]] = {}
    early: list[tuple[tuple[str, int, str, str], Extra]] = []
    for record in facts.run.compiles:
        change = _defect(facts, record)
        if change is None:
            continue
        place = _place(facts, record, change)
        extra = Extra(record, change, place)
        key = (place.file, place.line, *_cause(facts, change))
        if _settles(facts, record, change):
            if change.role != "state":  # which optimizers do once
                early.append((key, extra))
        else:
            found.setdefault(key, []).append(extra)
    settled = Counter(key for key, _ in early)
    for key in settled:  # what a barrier's graph settles to, that of a read before it settles to as well
        if len(found.get(key, ())) <= settled[key] and all(e.record.trigger == "read" for e in found.get(key, ())):
            found.pop(key, None)
    for key, extra in reversed(early):
        if key in found:
            found[key].insert(0, extra)
    all_groups = [Group(sort, name, extras[0].place, tuple(extras)) for (_, _, sort, name), extras in found.items()]
    causes = _with_consequences(all_groups)
    return [
        group
        for group in causes
        if not _follows(facts, group, causes) and not already_bucketed(facts, group) and not _has_stages(facts, group)
    ]


def _with_consequences(all_groups: list[Group]) -> list[Group]:
    """Which gradients there are, and which of them are cleared, follows from the path: one cause, not several."""
    found = list(all_groups)
    for group in all_groups:
        leader = next((i for i, other in enumerate(found) if _leads(other, group)), -1)
        if leader >= 0 and group in found:
            found[leader] = found[leader]._replace(extras=(*found[leader].extras, *group.extras))
            found.remove(group)
    return found


def _leads(one: Group, other: Group) -> bool:
    if one.sort == other.sort == "shape":  # a tensor that was brought here, and what took its shape from it
        return one.first.moved and not other.first.moved and _changes(one) == _changes(other)
    if one.sort != "operation" or one.first.role not in ("", "loop") or one.name == READ:
        return False
    if other.sort not in ("aliasing", "inputs", "operation") or other.first.role not in ("grad", "zero_grad"):
        return False
    barriers = {extra.record.stack for extra in one.extras}
    return all(extra.record.stack in barriers for extra in other.extras)


def _place(facts: Facts, record: CompileRecord, change: Change) -> Place:
    """The line to show: of another shape the one that made the tensor, of anything else the operation's."""
    if change.what in ("shape", "dtype"):
        made = facts.names.place(change.made)
        if made.line:
            return made
    place = facts.names.place(change.stack)
    return place if place.line else facts.names.place(record.stack)


def _cause(facts: Facts, change: Change) -> tuple[str, str]:
    """Sort, and what distinguishes it from other causes at one line."""
    if change.what == "shape":
        rank = "rank" if len(dims(change.old) or ()) != len(dims(change.new) or ()) else ""
        return "shape", rank or ("" if change.made else change.subject)
    if change.what == "scalar":
        special = next((text for text in (change.new, change.old) if special_number(text)), "")
        return "scalar", f"{change.subject} {change.role} {special}"
    if change.what == "operation" and change.subject != READ:
        inner = facts.names.place(change.made)
        return "operation", f"{change.role} {inner.code or inner.line or change.subject}"
    return change.what, change.subject


def special_number(text: str) -> bool:
    """Is it one of the numbers that are part of a graph: 0, 1, -1?"""
    try:
        return float(text) in (0.0, 1.0, -1.0)
    except ValueError:
        return False


def _follows(facts: Facts, group: Group, causes: list[Group]) -> bool:
    """Is it the consequence of something that is no recompilation, or has a finding of its own?

    A graph of its own for a read that asks for a size: the line has its finding. One graph that a copy between tensors
    costs: they are the same until one of them is written to. What a graph that grows all the time has more each time:
    that is a growing graph.
    """
    if group.sort == "aliasing" and len(group.extras) == 1:
        return True
    if group.sort == "operation" and group.first.role != "barrier" and len(group.extras) >= GROWTHS:
        sites = facts.run.sites
        if all(e.change.added and e.record.trigger != "read" and grows(sites[e.record.stack]) for e in group.extras):
            return True
    return group.name == READ and any(
        other.sort == "size" and (other.place.file, other.place.line) == (group.place.file, group.place.line)
        for other in causes
    )


def _defect(facts: Facts, record: CompileRecord) -> Change | None:
    """What changed, if this compile should not have been."""
    change = record.change
    if record.trigger == "read" and not (change is not None and change.what == "evicted"):
        sized, repeated = _reads(facts, record.stack)
        own = not record.nth or _takes_turns(facts, record, repeated)
        if sized and (own or (change is not None and is_sized(change.new))):
            return None  # reported with the selection, whose size is read before its elements are
        if record.again and own and repeated >= _HABIT and _has_loop(facts):
            return Change(
                "operation", "the graph up to the barrier", "the graph up to this read", READ, stack=record.stack
            )
        few = facts.run.sites[record.stack].compiles <= _HABIT
        if repeated < _HABIT and (few or record.t < _loop_begins(facts)):
            return None  # results read at the end; a model that is copied to the host before the first step
        if own and repeated >= _HABIT:
            return None  # one line reads this and that in each step: the norm of every parameter's gradient, say
    if change is None or change.what == "evicted":
        return change
    if record.trigger == "dynamo" and change.role != "dynamic":
        return None  # of a graph that Dynamo captured: why it captured another one, Dynamo reports
    if record.nth < visits_per_pass(facts.run, record.stack) or _warms_up(facts, record):
        return None  # the first graph of this barrier, or of each of its turns in a step
    if change.what == "operation" and change.role != "barrier" and _enters_loop(facts, record, change):
        return None
    if _is_anothers_turn(facts, record, change):
        return None
    return change


def _warms_up(facts: Facts, record: CompileRecord) -> bool:
    """A barrier that makes graphs for others: it compiles whenever it is reached, and each of them runs elsewhere."""
    site = facts.run.sites.get(record.stack)
    if site is None or record.trigger == "read" or not 1 < site.compiles == site.executed <= _BUCKETS:
        return False
    made = [one.program for one in facts.run.compiles if one.stack == record.stack]
    return all(facts.run.program_runs.get(program, 0) > 1 for program in made)


def _is_anothers_turn(facts: Facts, record: CompileRecord, change: Change) -> bool:
    """Another module's turn, one of a few: the players of a GAN, or the heads of several tasks, trained in turns."""
    is_parameter = change.what == "shape" and change.name and not change.made  # a module made it
    if change.role != "turn" and not is_parameter:
        return False
    return record.nth <= _TASKS and record.visits <= _TASKS and _comes_back(facts, record)


def _settles(facts: Facts, record: CompileRecord, change: Change) -> bool:
    """A first graph is replaced within the first steps, for good."""
    if record.trigger in ("read", "dynamo") or change.what not in _SETTLING:
        return False
    if change.role == "state" and change.removed and _began_late(facts, record, change):
        return True
    if record.visits > EARLY:
        return False
    return change.role == "state" or _is_carried(record, change) or not _comes_back(facts, record)


def _reads(facts: Facts, stack: int) -> tuple[bool, int]:
    """Were sizes read at ``stack`` that values decide; and how often was anything read there, in the loop?"""
    tallies = {op: tally for (place, op), tally in facts.run.reads.items() if place == stack}
    sized = any(is_sized(facts.names.text(op)) for op in tallies)
    return sized, sum(tally.in_steps if facts.named_steps else tally.looped for tally in tallies.values())


def _takes_turns(facts: Facts, record: CompileRecord, repeated: int) -> bool:
    """One line reads several times a step, in a helper that each block calls: each time ends a graph of its own."""
    steps = max((site.executed for site in facts.run.sites.values() if site.trigger != "read"), default=0)
    return steps > 0 and record.nth < ceil(repeated / steps)  # of the first step reads may not have counted


def _has_loop(facts: Facts) -> bool:
    """A barrier goes on with the graph that the read began."""
    return any(site.executed >= _HABIT for site in facts.run.sites.values())


def _loop_begins(facts: Facts) -> int:
    """When a barrier of the loop was first reached with a graph; 0 where there is no loop that is known."""
    sites = facts.run.sites
    loop = (r.t for r in facts.run.compiles if r.trigger != "read" and sites[r.stack].executed >= _HABIT)
    return min(loop, default=0)


def _comes_back(facts: Facts, record: CompileRecord) -> bool:
    """A graph that this one replaced ran again later: the program goes back and forth between them."""
    programs = facts.run.programs
    against = record.change.against if record.change is not None else 0
    return any(
        programs.get(program, 0) > record.t + record.dur for program in ((against,) if against else record.before)
    )


def _began_late(facts: Facts, record: CompileRecord, change: Change) -> bool:
    """It replaced, for good, a graph that had run in the first steps of a path of its own only: a generator's."""
    return 0 < facts.run.program_runs.get(change.against, 0) < EARLY and not _comes_back(facts, record)


def _is_carried(record: CompileRecord, change: Change) -> bool:
    """A sum that begins as a number: the first turn of its loop adds to that, the others to the sum so far."""
    of_one = not change.old.endswith(" tensors")  # a list's
    return record.nth == 1 and change.what in ("aliasing", "inputs") and not change.role and of_one


def _enters_loop(facts: Facts, record: CompileRecord, change: Change) -> bool:
    """What differs was recorded before the barrier's loop: sums set to zero at the begin of each epoch, say.

    What a condition of the program decides on is none of that: a copy of the best weights.
    """
    if facts.names.place(change.condition).code.startswith(("if ", "elif ")):
        return False
    return any(_precedes_loop(facts, stack, record.stack) for stack in (change.made, change.expected) if stack)


def _precedes_loop(facts: Facts, stack: int, barrier: int) -> bool:
    mine, theirs = innermost(facts.names, stack), facts.names.place(barrier)
    if theirs.code.startswith(("for ", "async for ")):  # a loader's: the head of a loop is in the one around it
        same = (mine.file, mine.func) == (theirs.file, theirs.func)
        return same and mine.line < theirs.line and facts.names.place(stack).line < theirs.line
    return is_outside(facts.names, stack, barrier)


def _has_stages(facts: Facts, group: Group) -> bool:
    """An input has one size for many steps, then another for good: progressive resizing, in two or three stages."""
    sizes = dict.fromkeys(extra.change.new for extra in group.extras)
    if group.sort != "shape" or len(sizes) >= _STAGES or group.first.old in sizes:
        return False
    runs = facts.run.program_runs
    return all(
        not _comes_back(facts, extra.record)
        and min(runs.get(extra.change.against, 0), runs.get(extra.record.program, 0)) >= _LONG
        for extra in group.extras
    )


def already_bucketed(facts: Facts, group: Group) -> bool:
    """One dimension takes turns between a few sizes, all multiples of eight: that is padding, done already.

    So it is with multiples of ten, say, or powers of two, where there are three of them: two may be so by chance. Of
    batch sizes that begin with the largest more than two have to take turns: the second is mostly that of a last batch.
    """
    axis = _axis(group)
    if axis < 0:
        return False
    shapes = (group.first.old, *(extra.change.new for extra in group.extras))
    sizes = [int(size) for text in shapes if (size := _value(text, axis)).isdecimal()]
    distinct = set(sizes)
    last = axis == 0 and sizes[0] == max(sizes)  # a last batch is smaller than those before it
    if not (3 if last else 2) <= len(distinct) <= _BUCKETS or not _is_padded(distinct):
        return False
    return all(_comes_back(facts, extra.record) for extra in group.extras[:-1]) and any(
        _comes_back(facts, extra.record) for extra in group.extras
    )


def _is_padded(sizes: set[int]) -> bool:
    """They are what one pads to, and hardly what lengths happen to be."""
    unit = gcd(*sizes)
    if unit % _UNIT == 0:
        return unit > 0
    powers = min(sizes) >= _SMALLEST and all(size & (size - 1) == 0 for size in sizes)
    return len(sizes) >= 3 and (unit >= _UNIT or powers)


def _changes(group: Group) -> set[tuple[str, str]]:
    return {(extra.change.old, extra.change.new) for extra in group.extras}


def values(facts: Facts, group: Group) -> tuple[tuple[str, int], ...]:
    """Every value seen of what changes, and how often the graph with it ran, in order of first use."""
    if group.sort not in ("shape", "dtype", "size", "argument", "scalar"):
        return ()
    axis = _axis(group)
    runs = facts.run.program_runs
    programs: dict[str, set[int]] = {}
    for extra in group.extras:
        change = extra.change
        programs.setdefault(_value(change.old, axis), set()).add(change.against)
        programs.setdefault(_value(change.new, axis), set()).add(extra.record.program)
    return tuple((value, max(1, sum(runs.get(one, 0) for one in own))) for value, own in programs.items())


def _axis(group: Group) -> int:
    """The one dimension that changes, or -1."""
    changed = {axis for extra in group.extras for axis in axes(extra.change)}
    return changed.pop() if group.sort == "shape" and len(changed) == 1 else -1


def _value(text: str, axis: int) -> str:
    sizes = dims(text) if axis >= 0 else None
    return str(sizes[axis]) if sizes is not None and axis < len(sizes) else text
