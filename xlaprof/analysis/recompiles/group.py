"""Compiles of one cause, and the values that the thing took which changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from operator import le
from typing import NamedTuple

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.loop_entry import begins_apart, is_behind
from xlaprof.analysis.fold.tallies import CompileRecord
from xlaprof.analysis.model import Place
from xlaprof.analysis.principles import HABIT, LITTLE, MOST
from xlaprof.analysis.shapes import axes, dims
from xlaprof.analysis.timeline.rhythm import Rhythm
from xlaprof.events import Change

_GROWS = 2  # changes: only more sizes, each larger than the one before, are called growth
VALUED = frozenset({"shape", "dtype", "size", "argument", "scalar"})


class Extra(NamedTuple):
    """An unnecessary compile, its cause, and the line to report it at."""

    record: CompileRecord
    change: Change
    place: Place
    share: float = 1.0  # of the compile: several causes of one graph bear it together
    back: bool = False  # what it replaced came back later
    either: bool = False  # of several causes, without any one of which there were no such compile


class Group(NamedTuple):
    """Compiles of one cause."""

    sort: str  # shape | dtype | size | scalar | argument | operation | outputs | inputs | aliasing | sharding | evicted
    name: str  # distinguishes it from others at its line
    place: Place
    extras: tuple[Extra, ...]

    @property
    def first(self) -> Change:
        """The first change."""
        return self.extras[0].change

    @property
    def alike(self) -> list[Extra]:
        """Those that are of the first one's kind, and not what follows from it: of a batch's tensors."""
        if not of_batch(self.first):
            return list(self.extras)
        return [extra for extra in self.extras if of_batch(extra.change)]

    @property
    def cost_s(self) -> float:
        """Seconds that went into these compiles."""
        return sum(extra.record.dur * extra.share for extra in self.extras) / 1e9


def of_batch(change: Change) -> bool:
    """Whether it is the size of a tensor that came from the host."""
    return change.what == "shape" and not change.name and (change.moved or not change.made)


def is_chosen(change: Change) -> bool:
    """Whether it is one of the tensors that an operation is given a list of, and another one than before."""
    listed = change.subject.startswith("tensors of ") and not change.role
    return listed and change.what in ("inputs", "aliasing") and not change.old.endswith(" tensors")


def is_carried(facts: Facts, group: Group) -> bool:
    """Whether graphs begin with work that others have not, and that is all: what a condition decides on, or what each
    turn of the barrier's loop computes behind the barrier. Graphs of another barrier, as of an evaluation that follows,
    may begin with it as well."""
    if group.sort != "operation" or not all(begins_apart(extra.change) for extra in group.extras):
        return False
    return any(_is_carried(facts, extra) for extra in group.extras)


def _is_carried(facts: Facts, extra: Extra) -> bool:
    change, record = extra.change, extra.record
    if change.removed:
        return False
    if change.condition:
        return len(record.parts) == 1 and record.parts[0].size == change.added > 0
    return is_behind(facts, change.made, record.stack)


def is_aside(facts: Facts, group: Group) -> bool:
    """Whether a condition beside the barrier decides on a few operations near the end of the graph, and nothing else of
    the graph differs."""
    change, record = group.first, group.extras[0].record
    middle = change.position < MOST * record.ops or change.removed > change.added
    if group.sort != "operation" or change.role or not change.condition or middle:
        return False
    condition, barrier = facts.place(change.condition).acting, facts.place(record.stack).acting
    turn = (condition.file, condition.func, condition.loop)
    beside = any(turn == (barrier.file, barrier.func, loop) for loop in (barrier.loop, barrier.line))  # or a loader's
    differs = max(change.added, change.removed)  # gradients would follow
    return beside and differs <= min(LITTLE * record.ops, sum(part.size for part in record.parts))


def comes_again(group: Group) -> list[Extra]:
    """Those that have as many operations more as the one before, of a line that the graph had already, and no fewer."""
    more = [one for one in group.extras if one.change.added and not one.change.removed and one.change.code_seen]
    alike = len({one.change.added for one in more}) == 1 and not any(one.back for one in more)
    larger = all(one.record.ops < other.record.ops for one, other in pairwise(more))
    path = group.sort == "operation" and not group.first.role
    return more if path and alike and larger and len(more) > 1 else []


SLICE = "bounds"  # the name of a group of slices at one line
_BOUND = {"start of aten::slice": "start", "end of aten::slice": "end"}


def is_bound(change: Change) -> bool:
    """Whether it is the start or the end of a slice."""
    return change.what == "argument" and not change.role and change.subject in _BOUND


class Window(NamedTuple):
    """What changed of a slice in one graph."""

    start: Change | None
    end: Change | None

    @property
    def lengths(self) -> tuple[int, int] | None:
        """Before and now, where both bounds changed and are numbers."""
        try:
            return (int(self.end.old) - int(self.start.old), int(self.end.new) - int(self.start.new))  # type: ignore[union-attr]
        except (AttributeError, ValueError):
            return None

    @property
    def went(self) -> str:
        """ "4:9 -> 15:21", or "end 21 -> 10"."""
        if self.start is not None and self.end is not None:
            return f"{self.start.old}:{self.end.old} -> {self.start.new}:{self.end.new}"
        both = (("start", self.start), ("end", self.end))
        return ", ".join(f"{name} {one.old} -> {one.new}" for name, one in both if one is not None)


def window_of(extra: Extra) -> Window:
    """What changed of the slice that a compile is for."""
    parts = [part.change for part in extra.record.parts if part.change.stack == extra.change.stack]
    bounds = {_BOUND[one.subject]: one for one in reversed([extra.change, *parts]) if is_bound(one)}
    return Window(bounds.get("start"), bounds.get("end"))


def windows(group: Group) -> list[Window]:
    """Of the slices that a group is about."""
    return [window_of(extra) for extra in group.extras if is_bound(extra.change)]


def is_moved(group: Group) -> bool:
    """Whether the start of the slice changes."""
    return any(one.start is not None for one in windows(group))


def has_lengths(group: Group) -> bool:
    """Whether slices of several lengths begin at several places: of one length, both bounds move as far."""
    of_one = (lengths is not None and lengths[0] == lengths[1] for lengths in (one.lengths for one in windows(group)))
    return is_moved(group) and not all(of_one)


def special_number(text: str) -> bool:
    """Whether ``text`` is one of the numbers that are part of a graph: 0, 1, -1."""
    try:
        return float(text) in (0.0, 1.0, -1.0)
    except ValueError:
        return False


def beside(facts: Facts, group: Group, alike: Callable[[Change, Change], bool]) -> dict[Place, list[Change]]:
    """What else changes in these graphs, ``alike`` the cause, by its line: one change for each graph."""
    found: dict[Place, list[Change]] = {}
    for extra in group.extras:
        first: dict[Place, Change] = {}
        for change in (part.change for part in extra.record.parts if alike(part.change, extra.change)):
            first.setdefault(facts.place(change.made or change.stack), change)
        for place, change in first.items():
            if place.line and place.at != group.place.at:
                found.setdefault(place, []).append(change)
    return found


def special_too(facts: Facts, group: Group) -> dict[Place, list[Change]]:
    """The numbers at other lines that became special in one of these graphs."""
    return beside(facts, group, lambda one, _: one.what == "scalar" and not one.role and special_number(one.new))


def same_number(facts: Facts, group: Group) -> list[Place]:
    """Other lines with a number that changes by as much in each of these graphs; in a single one, to the same."""

    def alike(one: Change, first: Change) -> bool:
        number = one.what in ("argument", "scalar") and not one.role
        equal = len(group.extras) > 1 or (one.old, one.new) == (first.old, first.new)
        return number and equal and _went(one) is not None and _went(one) == _went(first)

    found = beside(facts, group, alike)
    return [place for place, changes in found.items() if len(changes) == len(group.extras)]


def other_slices(facts: Facts, group: Group) -> list[Place]:
    """Other lines with a slice whose bounds change in most of these graphs, by numbers of its own."""
    found = beside(facts, group, lambda one, _: is_bound(one))
    most = [place for place, changes in found.items() if len(changes) > MOST * len(group.extras)]
    known = same_number(facts, group)
    return [place for place in most if place not in known]


def _went(change: Change) -> int | None:
    """By how much a whole number changed."""
    try:
        return int(change.new) - int(change.old)
    except ValueError:
        return None


def sizes(group: Group) -> set[int]:
    """All sizes that the dimensions took which change; of a size, an argument or a loop, the numbers that it took."""
    changes = [extra.change for extra in group.alike if extra.change.what == group.sort]
    counts = (text.partition(" ")[0] for one in changes for text in (one.old, one.new))  # "3", "3 passes"
    plain = {int(count) for count in counts if count.isdecimal()}
    return plain | {shape[axis] for one in changes for axis in axes(one) for shape in (dims(one.old), dims(one.new))}


def sizes_by_program(group: Group, axis: int) -> list[tuple[int, int]]:
    """The size of a dimension in the graph before and in the new one, of each compile: with their programs."""
    found = []
    for extra in group.alike:
        for program, text in ((extra.change.against, extra.change.old), (extra.record.program, extra.change.new)):
            found += [(program, size) for size in dims(text)[axis : axis + 1]]
    return found


def sizes_elsewhere(facts: Facts, group: Group, axis: int) -> list[int]:
    """Sizes that the same input had in graphs of other calls, which theirs were compared with: a warm-up's."""
    begun = {(one.change.against, one.change.old, one.change.subject) for one in group.alike}
    first = [(one.program, one.change) for one in facts.run.compiles if one.change and not one.change.against]
    found = [change for program, change in first if (program, change.new, change.subject) in begun]
    return [size for change in found for size in dims(change.old)[axis : axis + 1]]


def grows(group: Group) -> bool:
    """Whether what the program computes is longer in each graph, several times: there is no largest."""
    own = (extra.change for extra in group.extras if extra.change.what == group.sort)  # and not what follows from it
    # nor what came from the host, if some did: rows that were added
    went = [(dims(change.old), dims(change.new)) for change in own if change.moved == group.first.moved]
    longer = (all(map(le, old, new)) and old != new and len(old) == len(new) for old, new in went)
    return not group.first.moved and len(went) >= _GROWS and all(longer)


def is_irregular(rhythms: Iterable[Rhythm]) -> bool:
    """Whether one of the programs came again and again at its barrier, at no regular intervals: no last batch does."""
    return any(one.steps > HABIT and one.every <= 1 for one in rhythms)


def rhythms(facts: Facts, programs: Iterable[int]) -> list[Rhythm]:
    """Of those of the programs that ran: at which turns of their barriers."""
    known = facts.run.program_rhythms
    return [known[one] for one in programs if one in known]


def values(facts: Facts, group: Group) -> tuple[tuple[str, int], ...]:
    """Every value of the thing that changes, and how often the graph with it ran, in order of first use."""
    runs = facts.run.program_runs
    return tuple((value, max(1, sum(runs.get(one, 0) for one in own))) for value, own in versions(group).items())


def versions(group: Group) -> dict[str, set[int]]:
    """The programs of each value of the thing that changes."""
    if group.sort not in VALUED:
        return {}
    changed = {axis for extra in group.alike for axis in axes(extra.change)}
    axis = changed.pop() if group.sort == "shape" and len(changed) == 1 else -1  # the one dimension that changes
    found: dict[str, set[int]] = {}
    for extra in group.alike:
        if extra.change.what != group.sort or (group.name == SLICE and extra.change.subject != group.first.subject):
            continue  # there was nothing of it
        old, new, before, now = extra.change.old, extra.change.new, extra.change.against, extra.record.program
        found.setdefault(_value(old, axis), set()).add(before)
        found.setdefault(_value(new, axis), set()).add(now)
    return found


def _value(text: str, axis: int) -> str:
    sizes = dims(text)
    return str(sizes[axis]) if 0 <= axis < len(sizes) else text
