"""Programs that JAX makes again, sorted by what differs in the calls that need them: what is of one cause, and what is
meant."""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.looping import is_one_call
from xlaprof.analysis.fold.jit import JitRecord
from xlaprof.analysis.principles import HABIT, LARGE, LONG_S, MANY, MOST, NEARLY_ALL
from xlaprof.analysis.shapes import are_buckets, are_chosen, are_doubled
from xlaprof.analysis.sums import grouped
from xlaprof.analysis.uses import selection
from xlaprof.events import ArgumentChange, JitCompile

from .causes import (
    NUMBER,
    PARTS,
    changed_too,
    entries,
    in_numbers,
    led_by_one,
    maker_of,
    modes_of,
    names_mode,
    root_of,
)
from .sizes import (
    changed_dims,
    changed_sizes,
    grows,
    have_turns,
    last_batch,
    other_sizes,
    sizes_along,
    sizes_in_turn,
    sizes_of,
)

#: :attr:`Finding.operation` of these findings
JAX = "jax.jit"


class Group(NamedTuple):
    """Programs of one cause."""

    lead: list[JitRecord]  # of one change, which tells the cause
    along: list[JitRecord]  # that the same makes necessary

    @property
    def records(self) -> list[JitRecord]:
        """All of them, the lead's first."""
        return self.lead + self.along


class Sorted(NamedTuple):
    """Programs made for calls that differ from earlier ones."""

    found: list[Group]  # by cause
    necessary: list[JitRecord]  # another use of the function, a size or mode that was chosen


def sort_out(facts: Facts) -> Sorted:
    """What the programs made again belong to. One cause is one: of a function, whichever line calls it; of all those
    that are given an object made anew, or another static value, or that are dropped; of those that one function defines
    anew in turn; of all operations that follow one size, as of a mask. An operation outside of jitted functions has a
    program for every shape: only one whose size, operands or function vary again and again at a line is compiled again.
    """
    groups: dict[tuple[object, ...], list[JitRecord]] = {}
    necessary, found = [], []
    joins = _joins(facts)
    known = {_moment(record.event) for group in joins for record in group}
    for record in map(in_numbers, facts.run.jit.records):
        event, first = record.event, record.event.changes[0]
        name = re.sub(r"\d+\]", "]", first.name)  # elements of one list
        place = facts.place(event.stack)
        if _moment(event) in known:
            continue
        chosen = record.apart and first.kind in _OF_THE_CALL
        if chosen or (record.other and (first.kind in _OF_OBJECTS or names_mode(event) or _is_traced(facts, event))):
            necessary.append(record)
        elif first.kind in ("anew", "field"):  # of one object, the numbers that differ are one cause
            number = first.kind == "field" and NUMBER.fullmatch(first.new) and not record.other
            groups.setdefault((first.kind, root_of(name) if number else name), []).append(record)
        elif first.kind == "evicted":
            groups.setdefault((first.kind,), []).append(record)
        elif place.loop and _is_traced(facts, event):  # one function for a turn of the loop, whatever is in it
            groups.setdefault((place.file, place.func, place.loop), []).append(record)
        elif event.code:
            other = bool(modes_of(record))  # the same code around another function, beside what is made anew
            groups.setdefault((event.code, event.func, first.kind, name, first.dim, other), []).append(record)
        else:
            groups.setdefault((place.at, event.func, first.kind, name, first.dim), []).append(record)
    found += joins
    beside: list[list[JitRecord]] = []  # of operations that may have a program for every shape
    decided = _decided(facts, groups.values())
    for group in groups.values():
        if group[0].event.changes[0].kind == "field":
            group = led_by_one(group)
        if _by_design(facts, group):
            necessary += group
        elif not any(one.event.code for one in group) and (
            _are_of_leaves(facts, group, decided) or not _varies(facts, group, groups.values())
        ):
            beside.append(group)
        else:
            found.append(group)
    return Sorted(_joined(facts, found, beside), necessary)


def _joined(facts: Facts, groups: list[list[JitRecord]], beside: list[list[JitRecord]]) -> list[Group]:
    """The groups by cause; ``beside``: what may go along with one, and is none by itself."""
    found: list[Group] = []
    for group in sorted(groups, key=lambda one: _rank(facts, one)):
        mine = next((one for one in found if _is_part(facts, one, group)), None)
        if mine is not None:
            mine.along.extend(group)
            continue
        within = [] if group[0].event.code else [one for one in found if _is_called(facts, group, one.lead)]
        if within:  # what a line calls ran for another cause before: that leads to this line
            found = [one for one in found if one not in within]
            found.append(Group(group, [record for one in within for record in one.records]))
            continue
        own = [one for one in group if one.event.code] or group  # of the program's functions, where there are
        found.append(Group(own, [one for one in group if not one.event.code] if own is not group else []))
    lists = [one for one in found if is_list(one.lead)]
    for nth, other in enumerate(lists):  # what is appended to in the same turns is one habit
        first = next((one for one in lists[:nth] if one in found and have_turns(one.lead, other.records)), None)
        if first is not None:
            first.along.extend(other.records)
            found.remove(other)
    for cause in found:
        sizes = sizes_in_turn(cause.records if is_list(cause.lead) else cause.lead)
        if not cause.lead[0].event.code and sizes:
            of_them = (one for group in beside for one in group)
            cause.along.extend(one for one in of_them if not sizes.isdisjoint(sizes_in_turn([one])))
        cause.along.extend(one for group in beside if _goes_along(cause.lead, group) for one in group)
    return found


def _rank(facts: Facts, group: list[JitRecord]) -> tuple[bool, bool, bool, int]:
    """What leads a cause: a list that is joined, whose length is the size of all that is computed of it; the dearest of
    the program's functions; of weak types, and of operations, the first, and first of these what joins pieces."""
    first = group[0].event
    begins = not first.code or first.changes[0].kind == "weak type"  # what is computed of it follows
    joins = facts.text(first.func) in JOINS
    return not is_list(group), not first.code, not joins, first.t if begins else -ns(group)


def is_list(group: list[JitRecord]) -> bool:
    """Whether they are operations outside of jitted functions that join a list, a program for each length."""
    return not group[0].event.code and group[0].event.changes[0].kind == "structure"


def _is_as_long(joins: list[JitRecord], group: list[JitRecord]) -> bool:
    """Whether what was made for other sizes has as many rows, or as many times that, as the list that was joined last
    before it has arrays; or, where nobody counted these, grows in the same turns."""
    made = sorted((one.event.t, one.event.arrays) for one in joins)
    if not any(arrays for _, arrays in made):
        return grows([one.event.changes[0] for one in group]) and have_turns(joins, group)
    rows: Counter[float] = Counter()
    lengths: set[int] = set()
    for one in group:
        at = bisect(made, (one.event.t, 0)) - 1
        sizes = sizes_of(one.event.changes[0])
        if one.event.changes[0].kind == "shape" and sizes and at >= 0 and made[at][1]:
            rows[sizes[-1] / made[at][1]] += 1
            lengths.add(made[at][1])
    return len(lengths) > 1 and max(rows.values()) >= NEARLY_ALL * len(group)


def ns(records: Iterable[JitRecord]) -> int:
    return sum(one.event.dur for one in records)


def _is_part(facts: Facts, cause: Group, group: list[JitRecord]) -> bool:
    """Whether a group is made for a part of what the cause is: what is computed of a weakly typed array; another part
    of a structure, as of a list that begins empty and grows, or the same entries in another function; or, outside of
    any jitted function, sizes that change as the cause's; or what is as long as a list that is joined."""
    lead, other = cause.lead[0].event, group[0].event
    if is_list(cause.lead):  # JAX joins a long one part by part
        part = facts.text(other.func) in JOINS and facts.place(other.stack).at == facts.place(lead.stack).at
        return part or _is_as_long(cause.lead, group)
    if other.code:
        one, another = lead.changes[0], other.changes[0]
        same = (other.code, other.func) == (lead.code, lead.func)
        if another.kind == "function" and not same:  # itself made anew: it is held by the other, or given to it
            held = {change.new for one in cause.lead for change in one.event.changes}
            return facts.place(other.code).func in held or _made_in_turn(facts, cause.lead, group)
        if same and another.kind in PARTS and another.name in changed_too(cause.lead):
            return True  # the one went on to change where the other had its last value
        if one.kind == another.kind == "weak type":
            return same
        if one.kind == another.kind == "shape":  # the same array, given to both: one size is to serve all
            own, theirs = sizes_along(cause.lead), sizes_along(group)
            alike = (one.name, one.dim, other_sizes(one)) == (another.name, another.dim, other_sizes(another))
            return alike and len(own & theirs) >= MOST * min(len(own), len(theirs))
        if not one.kind == another.kind == "structure":
            return False
        outer, inner = sorted((one.name, another.name))
        within = re.match(re.escape(outer) + r"([.\[]|$)", inner) is not None
        return within and (same or not entries(cause.lead).isdisjoint(entries(group)))
    if not lead.code and _is_called(facts, cause.lead, group):
        return True
    sizes, others = sizes_in_turn(cause.lead), sizes_in_turn(group)
    of = len(others) if joins_pieces(facts, cause.lead) else max(len(sizes), len(others))  # it may be used later on
    return bool(others) and len(sizes & others) >= NEARLY_ALL * of


def _is_called(facts: Facts, lead: list[JitRecord], group: list[JitRecord]) -> bool:
    """Whether the group is of what the lead's line calls."""
    shapes = lead[0].event.changes[0].kind == "shape"
    return shapes and len(calls_of(facts, lead[0].event, group)) >= NEARLY_ALL * len(group)


def calls_of(facts: Facts, lead: JitCompile, records: Iterable[JitRecord]) -> list[JitRecord]:
    """Operations outside of jitted functions, of other sizes, in functions that the line calls at which one is."""
    at = facts.place(lead.stack).at
    sizes = (one for one in records if not one.event.code and one.event.changes[0].kind == "shape")
    return [one for one in sizes if at in {frame.at for frame in facts.names.frames(one.event.stack)[1:]}]


def joins_pieces(facts: Facts, group: list[JitRecord]) -> bool:
    """Whether they are operations that join an array, or a list, with what comes next."""
    changes = [one.event.changes[0] for one in group]
    return not group[0].event.code and facts.text(group[0].event.func) in JOINS and (is_list(group) or grows(changes))


def _made_in_turn(facts: Facts, lead: list[JitRecord], group: list[JitRecord]) -> bool:
    """Whether one function defines both, and makes them anew in the same calls or turns."""
    mine, other = (facts.place(one[0].event.code) for one in (lead, group))
    if lead[0].event.changes[0].kind != "function":
        return False
    (begin, end), (start, stop) = ([one[0].event.t, one[-1].event.t] for one in (lead, group))
    maker = maker_of(mine.func)
    return bool(maker) and (mine.file, maker) == (other.file, maker_of(other.func)) and begin < stop and start < end


#: what another line of the program may well call it with: evaluation beside training, a mode, another model
_OF_THE_CALL = frozenset({"shape", "rank", "static", "structure", "field", "anew"})
#: an object made anew: where its program has other operations, the same object would need that program as well
_OF_OBJECTS = frozenset({"function", "anew"})
#: operations that join pieces
JOINS = frozenset({"concatenate", "append", "stack"})
#: operations that trace a function of the program's
TRACING = frozenset({"scan", "while", "cond"})


def _is_traced(facts: Facts, event: JitCompile) -> bool:
    """Whether an operation outside of jitted functions traces a function that it is given, which is another one."""
    parameter = event.changes[0].kind in ("parameter", "structure")  # with it come the arrays that it holds
    return not event.code and parameter and facts.text(event.func) in TRACING


def _varies(facts: Facts, group: list[JitRecord], groups: Collection[list[JitRecord]]) -> bool:
    """Whether an operation outside of jitted functions is compiled for what varies, not for what a program has."""
    changes = [record.event.changes[0] for record in group]
    if len(group) < HABIT - 1:
        return False
    if changes[0].kind == "shape":  # of one size: step after step, more often than leaves have one, or in turn
        shapes = {text for change in changes for text in (change.old, change.new)}
        again = len({record.step for record in group}) >= HABIT or len(shapes) >= MANY
        one_size = all(len(changed_sizes(change)) == 1 for change in changes)
        return one_size and (again or any(_in_turn(group, other) for other in groups))
    if changes[0].kind == "parameter":
        return facts.text(group[0].event.func) in TRACING
    return changes[0].kind == "structure"


def _are_of_leaves(facts: Facts, group: list[JitRecord], decided: set[tuple[int, ...]]) -> bool:
    """Whether the sizes are those of what a program makes before its steps, as a model's layers: the steps need no
    other, and none was ``decided`` by pieces that were joined or by values; or what a library does in one call has."""
    shapes = group[0].event.changes[0].kind == "shape"
    before = max(record.step for record in group) <= 0 and facts.step_count >= MANY
    leaves = before and decided.isdisjoint(sizes_in_turn(group))
    return shapes and (leaves or all(is_one_call(facts, record.event.stack) for record in group))


def _decided(facts: Facts, groups: Iterable[list[JitRecord]]) -> set[tuple[int, ...]]:
    """Sizes before and after that come of joining pieces, or of selecting by values, outside of jitted functions."""
    outside = [one for group in groups for one in group if not one.event.code]
    return sizes_in_turn(
        [one for one in outside if facts.text(one.event.func) in JOINS or selection(facts.place(one.event.stack).code)]
    )


def _in_turn(group: list[JitRecord], other: list[JitRecord]) -> bool:
    """Whether two lines are compiled for one size after the other, both for each: a turn has one size of its own. Of
    leaves, one line has all sizes before the next line has any."""
    if len(group) < HABIT or group[0].event.stack == other[0].event.stack or len(group) != len(other):
        return False
    pairs = list(zip(group, other, strict=True))
    ends = [max(one.event.t, two.event.t) for one, two in pairs]
    begins = [min(one.event.t, two.event.t) for one, two in pairs]
    same = all(changed_sizes(one.event.changes[0]) == changed_sizes(two.event.changes[0]) for one, two in pairs)
    return same and all(end < begin for end, begin in zip(ends, begins[1:], strict=False))


def _goes_along(lead: list[JitRecord], group: list[JitRecord]) -> bool:
    """Whether an operation is compiled for another parameter in each turn in which the cause is for another size: a
    slice as long as what is computed of it, whose length is no size of its argument."""
    kinds = lead[0].event.changes[0].kind, group[0].event.changes[0].kind
    return kinds == ("shape", "parameter") and have_turns(lead, group)


def _by_design(facts: Facts, group: list[JitRecord]) -> bool:
    """Whether somebody chose these: sizes that are round (buckets), or the few modes of a static argument. A number is
    a mode where the set-up already needs all of its values, and many steps after it no other."""
    changes = [record.event.changes[0] for record in group]
    if changes[0].kind == "function":
        modes = {value for record in group for value in modes_of(record)}
        written = not any(value[0] in "'\"" for value in modes)  # functions: somebody wrote each of them
        return all(map(modes_of, group)) and (written or len(modes) <= HABIT)
    if changes[0].kind in ("static", "field"):
        values = {value for change in changes for value in (change.old, change.new)}
        if len(values) > HABIT or not any(map(NUMBER.fullmatch, values)):
            return len(values) <= HABIT
        last = max(record.step for record in group)
        chosen = group[0].event.code and all(map(str.isdecimal, values))
        return bool(chosen) and last < MANY <= facts.step_count - last
    if changes[0].kind != "shape" or not group[0].event.code:
        return False
    if len(group) == 1 and changed_dims(changes[0]) > 1:
        return True  # two sorts of batches, as long rows and short ones, or two grids: no sizes that vary meet so
    if _is_warm_up(facts, group):
        return True
    if grows(changes) and len({record.step for record in group}) > 1:
        return False
    if last_batch(changes):
        return False
    since = (record.step - earlier for earlier, record in zip((0, *(one.step for one in group)), group, strict=False))
    if len(group) < HABIT and all(steps >= MANY for steps in since):
        return True  # phases of the program, as of images that become larger
    sizes = {str(size) for change in changes for size in sizes_of(change)}
    calls = sum(facts.run.executions(stack) for stack in {record.event.stack for record in group})
    cheap = ns(group) < max(LARGE * facts.wall_s, LONG_S) * 1e9
    shared = calls >= MANY * len(sizes)
    pays = shared or cheap or are_doubled(sizes)
    several = len(sizes) > 2 or (shared and changes[0].dim > 0)  # two sizes of a batch are a whole and a last one
    return several and pays and (are_chosen(sizes) or (shared and are_buckets(sizes)))


def _is_warm_up(facts: Facts, group: list[JitRecord]) -> bool:
    """Whether lines before all steps call for nothing but these programs: each call makes the next of them."""
    made = Counter(record.event.stack for record in group)
    once = all(facts.run.executions(stack) <= count + 1 for stack, count in made.items())
    return once and max(record.step for record in group) <= 0 and facts.step_count >= MANY


def _joins(facts: Facts) -> list[list[JitRecord]]:
    """Operations of very many arrays, by line, with those of fewer that the list had before: each program of them is
    one too many, the first as well."""
    lines = {facts.place(event.stack).at for event in facts.run.jit.joins}
    outside = (one for one in facts.run.jit.records if not one.event.code and one.event.changes[0].kind == "structure")
    known = [one for one in outside if facts.place(one.event.stack).at in lines]
    events = {_moment(one.event) for one in known}
    changes = [ArgumentChange("structure")]
    first = (replace(event, changes=changes) for event in facts.run.jit.joins if _moment(event) not in events)
    every = sorted((*known, *(JitRecord(event, -1, False) for event in first)), key=lambda one: one.event.t)
    return [*grouped(every, lambda one: facts.place(one.event.stack).at).values()]


def _moment(event: JitCompile) -> tuple[int, int]:
    return event.t, event.stack


def compiled_outside(facts: Facts) -> set[tuple[str, int]]:
    """Lines of operations outside of jitted functions that are findings of this kind, and not only dropped."""
    groups = [one.records for one in facts.once(sort_out).found if one.lead[0].event.changes[0].kind != "evicted"]
    return {facts.place(one.event.stack).at for group in groups for one in group if not one.event.code}


def of_other_sizes(facts: Facts) -> set[int]:
    """Stacks of operations outside of jitted functions that are compiled for one size after the other."""
    found = facts.once(sort_out).found
    groups = (one.records for one in found if one.lead[0].event.changes[0].kind == "shape" or is_list(one.lead))
    return {one.event.stack for records in groups for one in records if not one.event.code}
