"""Programs that JAX makes again: by what differs in the calls that need them, with the cause and the advice."""

from __future__ import annotations

import ast
import re
from bisect import bisect
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from operator import ne
from typing import NamedTuple

from msgspec.structs import replace

from xlaprof.analysis.evidence.counted import Known, values
from xlaprof.analysis.evidence.facts import Facts, listed
from xlaprof.analysis.fold.jit import JitRecord
from xlaprof.analysis.model import Finding, FromTo, Moment, Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import HABIT, LARGE, LONG_S, MANY, MOST, NAMED, NEARLY_ALL
from xlaprof.analysis.shapes import are_chosen, are_doubled, dims
from xlaprof.analysis.statements import nodes
from xlaprof.analysis.sums import grouped
from xlaprof.analysis.uses import selection
from xlaprof.events import ArgumentChange
from xlaprof.text.quantities import duration, plural, times

from .jit_causes import (
    DEFINED_INSIDE,
    NUMBER,
    OUTSIDE,
    TEXTS,
    grows,
    last_batch,
    made_anew,
    maker_of,
    one_or_few,
    sizes_of,
)

#: :attr:`Finding.operation` of these findings
JAX = "jax.jit"
_METHOD = re.compile(r"\w\.(\w+)$")  # of a class, which no function stands between


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
    program for every shape, as leaves of a model have several: only one whose size, operands or function vary again and
    again at a line is compiled again.
    """
    groups: dict[tuple[object, ...], list[JitRecord]] = {}
    necessary, found = [], []
    joins = {facts.place(event.stack).at for event in facts.run.jit.joins}
    for record in facts.run.jit.records:
        event, first = record.event, record.event.changes[0]
        name = re.sub(r"\d+\]", "]", first.name)  # elements of one list
        place = facts.place(event.stack)
        if record.apart and first.kind in _OF_THE_CALL:
            necessary.append(record)
        elif first.kind in ("anew", "field"):
            groups.setdefault((first.kind, name), []).append(record)
        elif first.kind == "evicted":
            groups.setdefault((first.kind,), []).append(record)
        elif event.code:
            other = bool(_modes(record))  # the same code around another function, beside what is made anew
            groups.setdefault((event.code, event.func, first.kind, name, first.dim, other), []).append(record)
        elif place.at not in joins:
            groups.setdefault((place.at, event.func, first.kind, name, first.dim), []).append(record)
    beside: list[list[JitRecord]] = []  # of operations that may have a program for every shape
    for group in groups.values():
        if _by_design(facts, group):
            necessary += group
        elif any(one.event.code for one in group) or _varies(facts, group, groups.values()):
            found.append(group)
        else:
            beside.append(group)
    return Sorted(_joined(facts, found, beside), necessary)


def _joined(facts: Facts, groups: list[list[JitRecord]], beside: list[list[JitRecord]]) -> list[Group]:
    """The groups by cause; ``beside``: what may go along with one, and is none by itself."""
    found: list[Group] = []
    for group in sorted(groups, key=_rank):
        mine = next((one for one in found if _is_part(facts, one, group)), None)
        if mine is not None:
            mine.along.extend(group)
            continue
        own = [one for one in group if one.event.code] or group  # of the program's functions, where there are
        found.append(Group(own, [one for one in group if not one.event.code] if own is not group else []))
    for cause in found:
        sizes = _sizes_in_turn(cause.lead)
        if not cause.lead[0].event.code and sizes:
            of_them = (one for group in beside for one in group)
            cause.along.extend(one for one in of_them if not sizes.isdisjoint(_sizes_in_turn([one])))
        cause.along.extend(one for group in beside if _goes_along(cause.lead, group) for one in group)
    return found


def _rank(group: list[JitRecord]) -> tuple[bool, int]:
    """What leads a cause: the dearest of the program's functions; of weak types, and of operations, the first."""
    first = group[0].event
    begins = not first.code or first.changes[0].kind == "weak type"  # what is computed of it follows
    return not first.code, first.t if begins else -_ns(group)


def _ns(records: Iterable[JitRecord]) -> int:
    return sum(one.event.dur for one in records)


def _is_dropped(group: list[JitRecord]) -> bool:
    return group[0].event.changes[0].kind == "evicted"


def _is_part(facts: Facts, cause: Group, group: list[JitRecord]) -> bool:
    """Whether a group is made for a part of what the cause is: what is computed of a weakly typed array; another part
    of a structure, as of a list that begins empty and grows, or the same entries in another function; or, outside of
    any jitted function, sizes that change as the cause's, or a list joined at the line of the call, of as many more."""
    lead, other = cause.lead[0].event, group[0].event
    if other.code:
        one, another = lead.changes[0], other.changes[0]
        same = (other.code, other.func) == (lead.code, lead.func)
        if another.kind == "function" and not same:  # itself made anew: it is held by the other, or given to it
            held = {change.new for one in cause.lead for change in one.event.changes}
            return facts.place(other.code).func in held or _made_in_turn(facts, cause.lead, group)
        if one.kind == another.kind == "weak type":
            return same
        if one.kind == another.kind == "shape":  # the same array, given to both: one size is to serve all
            own, theirs = _sizes_along(cause.lead), _sizes_along(group)
            alike = (one.name, one.dim, _beside(one)) == (another.name, another.dim, _beside(another))
            return alike and len(own & theirs) >= MOST * min(len(own), len(theirs))
        if not one.kind == another.kind == "structure":
            return False
        outer, inner = sorted((one.name, another.name))
        within = re.match(re.escape(outer) + r"([.\[]|$)", inner) is not None
        return within and (same or not _entries(cause.lead).isdisjoint(_entries(group)))
    if lead.code and other.changes[0].kind == "structure" and facts.place(lead.stack).at == facts.place(other.stack).at:
        return [one.step for one in cause.lead] == [one.step for one in group]
    sizes, others = _sizes_in_turn(cause.lead), _sizes_in_turn(group)
    return bool(others) and len(sizes & others) >= NEARLY_ALL * max(len(sizes), len(others))


def _made_in_turn(facts: Facts, lead: list[JitRecord], group: list[JitRecord]) -> bool:
    """Whether one function defines both, and makes them anew in the same calls or turns."""
    mine, other = (facts.place(one[0].event.code) for one in (lead, group))
    if lead[0].event.changes[0].kind != "function":
        return False
    (begin, end), (start, stop) = ([one[0].event.t, one[-1].event.t] for one in (lead, group))
    maker = maker_of(mine.func)
    return bool(maker) and (mine.file, maker) == (other.file, maker_of(other.func)) and begin < stop and start < end


def _entries(group: list[JitRecord]) -> set[str]:
    """Entries of a structure that came or went, with their types."""
    changes = (record.event.changes[0] for record in group)
    return {text for change in changes for text in (change.old, change.new) if text}


def _sizes_in_turn(group: list[JitRecord]) -> set[tuple[int, ...]]:
    """The size before and after, of each program that another size of an argument needs."""
    changes = (record.event.changes[0] for record in group)
    return {tuple(sizes) for change in changes if change.kind == "shape" and (sizes := sizes_of(change))}


#: what another line of the program may well call it with: evaluation beside training, a mode, another model
_OF_THE_CALL = frozenset({"shape", "rank", "static", "structure", "field", "anew"})
#: operations that trace a function of the program's
_TRACING = frozenset({"scan", "while", "cond"})


def _varies(facts: Facts, group: list[JitRecord], groups: Collection[list[JitRecord]]) -> bool:
    """Whether an operation outside of jitted functions is compiled for what varies, not for what a program has."""
    changes = [record.event.changes[0] for record in group]
    if len(group) < HABIT - 1:
        return False
    if changes[0].kind == "shape":  # of one size: step after step, more often than leaves have one, or in turn
        shapes = {text for change in changes for text in (change.old, change.new)}
        again = len({record.step for record in group}) >= HABIT or len(shapes) >= MANY
        one_size = all(len(_changed(change)) == 1 for change in changes)
        return one_size and (again or any(_in_turn(group, other) for other in groups))
    if changes[0].kind == "parameter":
        return facts.text(group[0].event.func) in _TRACING
    return changes[0].kind == "structure"


def _changed(change: ArgumentChange) -> set[tuple[int, int]]:
    """Sizes before and after, of all dimensions that differ: one, where the same size stands in several."""
    return {pair for pair in zip(dims(change.old), dims(change.new), strict=False) if ne(*pair)}


def _in_turn(group: list[JitRecord], other: list[JitRecord]) -> bool:
    """Whether two lines are compiled for one size after the other, both for each: a turn has one size of its own. Of
    leaves, one line has all sizes before the next line has any."""
    if len(group) < HABIT or group[0].event.stack == other[0].event.stack or len(group) != len(other):
        return False
    pairs = list(zip(group, other, strict=True))
    ends = [max(one.event.t, two.event.t) for one, two in pairs]
    begins = [min(one.event.t, two.event.t) for one, two in pairs]
    same = all(_changed(one.event.changes[0]) == _changed(two.event.changes[0]) for one, two in pairs)
    return same and all(end < begin for end, begin in zip(ends, begins[1:], strict=False))


def _goes_along(lead: list[JitRecord], group: list[JitRecord]) -> bool:
    """Whether an operation is compiled for another parameter in each turn in which the cause is for another size: a
    slice as long as what is computed of it, whose length is no size of its argument."""
    kinds = lead[0].event.changes[0].kind, group[0].event.changes[0].kind
    if len(lead) < HABIT or kinds != ("shape", "parameter"):
        return False
    turns = [one.event.t for one in lead]
    own = Counter(bisect(turns, one.event.t) for one in group)
    return len(own) >= NEARLY_ALL * len(turns) and set(own.values()) == {1}


def _by_design(facts: Facts, group: list[JitRecord]) -> bool:
    """Whether somebody chose these: sizes that are round (buckets), or the few modes of a static argument. A number is
    a mode where the set-up already needs all of its values, and many steps after it no other."""
    changes = [record.event.changes[0] for record in group]
    if changes[0].kind == "function":
        modes = {value for record in group for value in _modes(record)}
        written = not any(value[0] in "'\"" for value in modes)  # functions: somebody wrote each of them
        return all(map(_modes, group)) and (written or len(modes) <= HABIT)
    if changes[0].kind in ("static", "field"):
        values = {value for change in changes for value in (change.old, change.new)}
        if len(values) > HABIT or not any(map(NUMBER.fullmatch, values)):
            return len(values) <= HABIT
        last = max(record.step for record in group)
        chosen = group[0].event.code and all(map(str.isdecimal, values))
        return bool(chosen) and last < MANY <= facts.step_count - last
    if changes[0].kind != "shape" or not group[0].event.code:
        return False
    if len(group) == 1 and len(_changed(changes[0])) > 1:
        return True  # two sorts of batches, as long rows and short ones: no sizes that vary meet so
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
    calls = sum(facts.run.executions_at.get(stack, 0) for stack in {record.event.stack for record in group})
    cheap = _ns(group) < max(LARGE * facts.wall_s, LONG_S) * 1e9
    shared = calls >= MANY * len(sizes)
    pays = shared or cheap or are_doubled(sizes)
    several = len(sizes) > 2 or (shared and changes[0].dim > 0)  # two sizes of a batch are a whole and a last one
    return several and are_chosen(sizes) and pays


def _modes(record: JitRecord) -> set[str]:
    """What the closure of a function holds that is another one than in any call before, and no number: the kernel, the
    loss or the mode that it was made for, each of which needs a program. Empty: what it holds was there before."""
    changes = record.event.changes
    held = changes[1:] if changes[0].kind == "function" else []
    modes = (one for one in held if one.kind == "field" and one.old and one.new)
    return {text for one in modes for text in (one.old, one.new) if not NUMBER.fullmatch(text)}


def _is_warm_up(facts: Facts, group: list[JitRecord]) -> bool:
    """Whether lines before all steps call for nothing but these programs: each call makes the next of them."""
    made = Counter(record.event.stack for record in group)
    once = all(facts.run.executions_at.get(stack, 0) <= count + 1 for stack, count in made.items())
    return once and max(record.step for record in group) <= 0 and facts.step_count >= MANY


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each function and cause."""
    for group in (*facts.once(sort_out).found, *_joins(facts)):
        yield _finding(facts, group)


def _joins(facts: Facts) -> Iterable[Group]:
    """Operations of very many arrays, by line: each program of them is one too many, the first as well."""
    changes = [ArgumentChange("structure")]
    joins = (JitRecord(replace(event, changes=changes), -1, False) for event in facts.run.jit.joins)
    return [Group(lead, []) for lead in grouped(joins, lambda one: facts.place(one.event.stack).at).values()]


def compiled_outside(facts: Facts) -> set[tuple[str, int]]:
    """Lines of operations outside of jitted functions that are findings of this kind, and not only dropped."""
    groups = [one.records for one in (*facts.once(sort_out).found, *_joins(facts)) if not _is_dropped(one.lead)]
    return {facts.place(one.event.stack).at for group in groups for one in group if not one.event.code}


def of_other_sizes(facts: Facts) -> set[int]:
    """Stacks of operations outside of jitted functions that are compiled for one size after the other."""
    groups = (one.records for one in facts.once(sort_out).found if one.lead[0].event.changes[0].kind == "shape")
    return {one.event.stack for records in groups for one in records if not one.event.code}


def dropped(facts: Facts) -> Counter[int]:
    """ns of compiling operations outside of jitted functions again, whose programs were dropped, by Stack id."""
    found: Counter[int] = Counter()
    for group in facts.once(sort_out).found:
        for one in group.records if _is_dropped(group.lead) else ():
            found[one.event.stack] += 0 if one.event.code else one.event.dur
    return found


def _finding(facts: Facts, cause: Group) -> Finding:
    group, records = cause.lead, sorted(cause.records, key=lambda one: one.event.t)
    event, change = group[0].event, group[0].event.changes[0]
    changes = [record.event.changes[0] for record in group]
    known = TEXTS if event.code else TEXTS | OUTSIDE
    selects = not event.code and change.kind == "shape" and _selecting(facts, records).line
    text = known.get("selection" if selects else change.kind, TEXTS["function"])
    advice = text.advice if isinstance(text.advice, str) else text.advice(group)
    fields = _fields(facts, cause)
    if change.kind == "function" and fields["beside"]:
        advice = DEFINED_INSIDE
    cost = _ns(records) / 1e9
    name = fields["function"]
    was = "were" if "," in name else "was"
    again = [one for one in records if one.event.code]
    what = f"{name} {was} compiled again {times(len(again))}" if event.code else plural(len(records), "program")
    if again and len(again) < len(records):
        what += f", and {_outside(facts, records)}"
    return facts.finding(
        "recompile",
        facts.place(event.cleared or event.stack),  # what is to be changed
        operation=JAX,
        count=len(records),
        counted=Known(tuple(Moment(one.event.t, one.event.dur, detail=_went(one)) for one in records)),
        cost_s=cost,
        cause=f"{_filled(text.cause, fields)}: {what}, {duration(cost)} in all.",
        advice=_filled(advice, fields),
        change=FromTo(change.kind, change.old, change.new),
        evidence=listed([_evidence(record) for record in records]),
        discriminator=f"{name} {change.kind} {change.name}",
        also=[facts.place(one) for record in records for one in (record.event.stack, record.event.code)],
        values=values((one.old, one.new) for one in changes),
    )


def _selecting(facts: Facts, records: list[JitRecord]) -> Place:
    """The line that decides by values how many elements the operations have; NOWHERE: none is seen to."""
    lines = (facts.place(one.event.stack) for one in records)
    return next((line for line in lines if selection(line.code)), NOWHERE)


def _outside(facts: Facts, records: list[JitRecord]) -> str:
    """What of them are operations outside of jitted functions."""
    outside = [one for one in records if not one.event.code]
    names = dict.fromkeys(facts.text(one.event.func) for one in outside)
    lines = dict.fromkeys(short(facts.place(one.event.stack)) for one in outside)
    where = ", ".join(islice(lines, NAMED))
    return f"{', '.join(islice(names, NAMED))} at {where}, outside of any jitted function, {times(len(outside))}"


def _fields(facts: Facts, cause: Group) -> dict[str, str]:
    group, event = cause.lead, cause.lead[0].event
    change = event.changes[0]
    went = {(one.old, one.new) for one in (record.event.changes[0] for record in group)}
    # of the first call: as many differ in those after it, or what is computed of them
    others = [one.name for one in event.changes if one.kind == change.kind and one.name != change.name]
    of = [one for one in cause.records if one.event.code] or cause.records
    functions = dict.fromkeys(facts.text(record.event.func) for record in of)
    more = f", and {plural(len(went) - 1, 'further change')}" if len(went) > 1 else ""
    caller = facts.place(event.stack).func
    method = _METHOD.search(caller)
    selecting, amounts = _selecting(facts, cause.records), sorted(_sizes_along(group)) or [0]
    several = len({record.event.changes[0].name for record in group}) > 1  # elements: it is the list that differs
    return {
        "name": (re.sub(r"\[\d+\]$", "", change.name) if several else change.name) or "an argument",
        "root": re.split(r"[.\[]", change.name)[0] or "the argument",
        "there": "jax.NamedSharding(mesh, jax.P())" if "," in change.new else "device",
        "old": change.old or "nothing",
        "new": change.new or "nothing",
        "went": f"from {change.old} to {change.new}{more}",
        "dim": str(max(change.dim, 0)),
        "sizes": one_or_few(_sizes_along(of)),
        "function": ", ".join(list(functions)[:4]),
        "others": f" (and of {', '.join(others[:3])})" if others else "",
        "besides": f" (and {', '.join(others[:3])})" if others else "",
        "caller": caller or "the function around this line",
        "method": f" ({_of_a_method(method[1])})" if method else "",
        "cleared": f" at {short(facts.place(event.cleared))}" if event.cleared else "",
        "selected": f"{selection(selecting.code)} at {short(selecting)}",
        "amounts": f"{amounts[0]:,} to {amounts[-1]:,}",
        "held": _held(of if change.kind == "function" else group),
        "it": "each" if len(functions) > 1 else "it",
        **_made(facts, of),
        "static": _turns(facts.place(event.stack).code) or "...",
        "arrays": plural(max(record.event.arrays for record in group), "array"),
        "config": f": {change.name} went from {change.old} to {change.new}" if change.name else "",
    }


def _sizes_along(group: list[JitRecord]) -> set[int]:
    return {size for record in group for size in sizes_of(record.event.changes[0])}


def _beside(change: ArgumentChange) -> list[int]:
    """The sizes of the other dimensions."""
    return [size for at, size in enumerate(dims(change.new)) if at != change.dim]


def _held(group: list[JitRecord]) -> str:
    """What a function that is made anew has by its closure, where that differs."""
    changes = [change for record in group for change in record.event.changes[1:]]
    numbers = [f"{one.name} went from {one.old} to {one.new}" for one in changes if one.kind == "field" and one.old]
    told = [*dict.fromkeys(numbers), *(f"another {name}" for name in made_anew(group))][:NAMED]
    return f" (what it holds differs: {', '.join(told)})" if told else ""


def _made(facts: Facts, group: list[JitRecord]) -> dict[str, str]:
    """The function that makes others anew, and what else of theirs: functions that it defines as well, and objects."""
    maker = maker_of(facts.place(group[0].event.code).func) if group[0].event.code else ""
    texts, shown = made_anew(group), maker.replace(".<locals>", "")
    beside = [name for name, text in texts.items() if maker and maker_of(text) == maker]
    once = [name for name in texts if name not in beside]
    several = len({one.event.code for one in group}) > 1
    return {
        "maker": shown,
        "made": f", which {shown} makes" if maker and (several or beside) else "",
        "beside": ", ".join(beside[:NAMED]),
        "once": f" Make {', '.join(once[:NAMED])} once, before that." if once else "",
    }


def _turns(code: str) -> str:
    """The name that a line gives jax.lax.scan for the number of turns, quoted; "": it gives none."""
    lengths = (one.value for call in nodes(code, ast.Call) for one in call.keywords if one.arg == "length")
    return next((repr(one.id) for one in lengths if isinstance(one, ast.Name)), "")


def _of_a_method(name: str) -> str:
    """How to put it under jax.jit: @jax.jit would take ``self`` for an array."""
    return (
        f"a method: self.{name} = jax.jit(self.{name}) in __init__; what it reads of self then stays as at the first "
        "call: pass what changes"
    )


def _filled(text: str, fields: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: fields.get(found[1], found[0]), text)


def _went(record: JitRecord) -> str:
    change = record.event.changes[0]
    return f"{change.old} -> {change.new}" if change.old or change.new else change.kind


def _evidence(record: JitRecord) -> str:
    when = f"step {record.step}" if record.step > 0 else f"program {record.event.versions + 1}"
    others = [f"{one.name} {one.old} -> {one.new}".strip() for one in record.event.changes[1:4]]
    too = f"; differs too: {', '.join(others)}" if others else ""
    return (
        f"{when}: {duration(record.event.dur / 1e9)}, {f'{record.event.changes[0].name} {_went(record)}'.strip()}{too}"
    )
