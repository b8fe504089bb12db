"""The unnecessary compiles, grouped by cause.

Necessary are:

* warm-up: the first compile at a barrier (a new phase of the program, such as evaluation, has a barrier of its own),
  a first graph that is replaced within the first steps and never comes back (unless it is dear, and a barrier before
  the loop spares it), and the graphs of an optimizer that makes its state and of its second step;
* graphs that a barrier of their own makes in advance;
* those that are meant: of buckets, or modules, that take turns, of stages, of micro-batches (:mod:`.design`).

Where graphs go on being replaced for the same reason, it was no warm-up. A read in a loop with barriers needs a graph
of its own: that one belongs to the read's finding.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from xlaprof.analysis.diagnosis import USED
from xlaprof.analysis.evidence.dynamic_size_ops import is_sized
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.loop_entry import CONDITIONS, LOOPS, entered, entry, holder, left_pending
from xlaprof.analysis.evidence.looping import beside, growing, unbarred, visits_per_pass
from xlaprof.analysis.evidence.reads import habits, in_loop, is_own_graph, leaves_element, takes_element
from xlaprof.analysis.fold.tallies import CompileRecord
from xlaprof.analysis.model import Place
from xlaprof.analysis.names import head
from xlaprof.analysis.principles import DEAR, FELT, HABIT, KEPT, LONG_S, MANY, MOST
from xlaprof.analysis.recompiles.arguments import is_length
from xlaprof.analysis.recompiles.design import by_design
from xlaprof.analysis.recompiles.group import (
    SLICE,
    VALUED,
    Extra,
    Group,
    comes_again,
    grows,
    is_bound,
    is_chosen,
    of_batch,
    sizes,
)
from xlaprof.analysis.recompiles.variants import causes, comes_back
from xlaprof.analysis.recompiles.varying import made_by
from xlaprof.analysis.shapes import axes, dims
from xlaprof.analysis.statements import nodes
from xlaprof.events import Change

_USED_NUMBER = re.compile(r"(aten::\S+) \((\w+) (\S+)\)")
EARLY = 3  # visits of a barrier in which its first graph may still be replaced
_WARMED = 8  # graphs that a barrier makes in advance, at most
#: roles of what the graph of a loop's first turn holds of before, and of what the others hold of the turn before
_BEFORE = frozenset({"entry", "turn"})
_Key = tuple[str, int, str, str]  # file, line, sort of change, name
_SETTLING = frozenset({"operation", "inputs", "outputs", "aliasing", "sharding"})


def groups(facts: Facts) -> list[Group]:
    """The extra compiles by line and cause, in the order in which they first came."""
    return facts.once(_groups)[0]


def meant(facts: Facts) -> frozenset[tuple[int, int]]:
    """Programs and moments of the compiles that are meant."""
    return frozenset((extra.record.program, extra.record.t) for one in facts.once(_groups)[1] for extra in one.extras)


def _most_first(extras: list[Extra]) -> list[Extra]:
    """Those first of which there are more: changes of what comes from the host, or of what was computed. A first batch
    that is joined to nothing is of another size than the single rows after it, which make the rest grow."""
    moved = sum(extra.change.moved for extra in extras) * 2 > len(extras)
    return sorted(extras, key=lambda extra: extra.change.moved != moved)


def spared(facts: Facts) -> frozenset[int]:
    """Programs that a finding tells of as those of a loop's first turn: the ones that replaced them are needed."""
    return frozenset(e.record.program for one in groups(facts) for e in one.extras if e.change.role in _BEFORE)


def settles(facts: Facts, record: CompileRecord, change: Change) -> int:
    """By how many inputs a graph of the warm-up grew, where many came: parameters have states."""
    if record.visits > EARLY:
        return 0
    before = next((one.inputs for one in facts.run.compiles if one.program == change.against), record.inputs)
    more = record.inputs - before
    return more if more >= max(MANY, MOST * before) else 0


def _groups(facts: Facts) -> tuple[list[Group], list[Group]]:
    """Those to tell of, and those that are meant."""
    found: dict[_Key, list[Extra]] = {}
    early: list[tuple[_Key, Extra]] = []
    why = causes(facts.run.compiles)
    loop, grown = facts.once(unbarred), facts.once(growing)
    reads = [stack for stack in grown if facts.run.sites[stack].trigger == "read"]
    grown_by = {head(facts.names.loop(stack)) for stack in reads}
    ages, back = _ages(facts), comes_back(facts.run.compiles, facts.run.programs)
    programs = {record.program: record for record in facts.run.compiles}
    apart: set[Change] = set()  # what tells values apart that one trace reads, and does so in each combination
    for record in facts.run.compiles:
        of_it = [_before_the_read(facts, one) for one in why[record.program, record.t].changes]
        apart.update(one for one in of_it if one is not None and is_of_another_value(facts, record, one))
        changes = [change for one in of_it if one not in apart and (change := _defect(facts, record, one)) is not None]
        if (left := _left_over(facts, record)) is not None:
            changes = [left]
        turns = record.stack in grown or (loop is not None and loop.follows(facts, record))
        # another number of turns; and the barrier after a loop whose reads run all turns so far runs them once more
        longer = [
            one
            for one in changes
            if (turns and one.what == "operation" and one.role != "pending")
            or (one.role == "loop" and head(facts.place(one.made)) in grown_by)
        ]
        changes = [one for one in changes if one not in longer]
        by_line: dict[_Key, tuple[Change, Place]] = {}
        for change in changes:
            place = _place(facts, record, change)
            by_line.setdefault((*place.at, *_cause(facts, change)), (change, place))
        for key, (change, place) in by_line.items():
            # the graph before held what precedes the loop: that one is not needed
            of = programs.get(holder(record, change), record) if change.role == "entry" else record
            new_anyway = of_it[0].role == "state" or longer
            share, again = 0.0 if new_anyway else 1 / len(by_line), (record.program, record.t) in back
            either = why[record.program, record.t].either and len(by_line) > 1
            extra = Extra(of, change, place, share, again, either)
            first = record.trigger not in ("read", "dynamo") and ages[record.program] <= EARLY
            # replaced within the first steps of its work, for good: a barrier before the loop may spare it
            avoidable = change.role in _BEFORE and of.dur >= LONG_S * 1e9
            if first and change.what in _SETTLING and not avoidable and not again:
                early.append((key, extra))
            else:
                found.setdefault(key, []).append(extra)
    settled = Counter(key for key, _ in early)
    for key in settled:  # a read's graph settles together with the graph of the barrier after it
        if len(found.get(key, ())) <= settled[key] and all(e.record.trigger == "read" for e in found.get(key, ())):
            found.pop(key, None)
    for key, extra in reversed(early):
        if key in found:
            found[key].insert(0, extra)
    all_groups = [
        Group(sort, name, extras[0].place, tuple(_most_first(extras))) for (_, _, sort, name), extras in found.items()
    ]
    dear = {**dict.fromkeys(_BEFORE, DEAR), "pending": FELT}  # shares of the run
    all_groups = [g for g in all_groups if g.cost_s >= dear.get(g.first.role, 0.0) * facts.wall_s]
    all_groups = [g for g in map(_needed, all_groups) if any(extra.share for extra in g.extras)]
    leading = _join(all_groups, partial(_consequences, facts), later=True)
    bearing = {id(extra.record) for g in leading for extra in g.extras}
    paths = [g._replace(extras=tuple(e for e in g.extras if id(e.record) not in bearing)) for g in all_groups]
    designed = [g for g in leading if by_design(facts, g)] + [g for g in paths if g.extras]
    told = [_bearing(g, designed) for g in leading if not _is_meant(g, designed)]
    told = _divided(_join(told, partial(_of_one_batch, facts)))
    # one graph for a copy between tensors, which are the same until one of them is written
    once = [g for g in told if g.sort == "aliasing" and len(g.extras) == 1 and g.first.role != "entry"]
    return [g for g in told if g not in once], designed


def _divided(told: list[Group]) -> list[Group]:
    """A new combination is the cause's that spares most once it is mended. What is left of the others is what they
    would still cost then, so that nothing is promised twice."""
    shares: defaultdict[CompileRecord, float] = defaultdict(float)
    for extra in (extra for group in told for extra in group.extras):
        shares[extra.record] += extra.share
    left, taken, found = dict(enumerate(told)), set[CompileRecord](), dict[int, Group]()
    while left:
        for at, group in left.items():
            left[at] = group._replace(extras=tuple(e for e in group.extras if e.record not in taken))
        number = max(left, key=lambda at: sum(e.record.dur * (e.either or e.share) for e in left[at].extras))
        group = left.pop(number)
        found[number] = group._replace(
            extras=tuple(e._replace(share=shares[e.record]) if e.either else e for e in group.extras)
        )
        taken.update(e.record for e in group.extras if e.either)
    return [group for _, group in sorted(found.items()) if group.extras]


_Part = Callable[[Group, Group], Iterable[Extra] | None]  # the compiles of the second as parts of the first; None: none


def _join(all_groups: list[Group], part: _Part, *, later: bool = False) -> list[Group]:
    """Add each group to the first other that it is a part of, also a ``later`` one."""
    found = dict(enumerate(all_groups))
    for number in range(len(all_groups)):
        group = found[number]  # with those that were added to it
        for at, other in found.items():
            if at == number and not later:
                break
            if at == number or (extras := part(other, group)) is None:
                continue
            bearing = {extra.record: extra for extra in other.extras}
            for extra in extras:  # each compile once, with what both bear of it
                known = bearing.get(extra.record, extra._replace(share=0.0))
                bearing[extra.record] = known._replace(share=known.share + extra.share)
            first, *rest = bearing.values()
            found[at] = other._replace(extras=(first, *sorted(rest, key=lambda one: one.record.t)))
            del found[number]
            break
    return list(found.values())


def _of_one_batch(facts: Facts, one: Group, other: Group) -> Iterable[Extra] | None:
    """Of tensors of a batch whose sizes vary, in one graph, in the parts that reads make of a step, or in all loops
    over what one function collates, or over batches of the same sizes, as an evaluation's: padding one of them alone
    would not help, and padding all helps once."""
    if not of_batch(one.first) or not of_batch(other.first):
        return None
    barriers = {extra.record.stack for extra in one.extras}
    if any(extra.record.stack in barriers for extra in other.extras):
        return other.extras
    mains = {facts.names.frames(group.extras[0].record.stack)[-1:] for group in (one, other)}  # ranks may run several
    files = {line.file for main in mains for line in main}
    if axes(one.first) == axes(other.first) and sizes(one) == sizes(other) and len(files) == 1:
        return other.extras
    maker = made_by(facts, other.first)
    return other.extras if maker.line and made_by(facts, one.first) == maker else None


def _bearing(group: Group, designed: Iterable[Group]) -> Group:
    """What is meant, and was compiled for before, bears no part of a graph that something else makes anew."""
    known: dict[tuple[int, int], float] = {}
    for one in designed:
        seen: set[str] = set()
        for extra in sorted(one.extras, key=lambda extra: extra.record.t):
            if extra.change.new in seen:
                known[extra.record.program, extra.record.t] = extra.share
            seen.update((extra.change.old, extra.change.new))
    more = ((extra, known.get((extra.record.program, extra.record.t), 0.0)) for extra in group.extras)
    return group._replace(extras=tuple(extra._replace(share=extra.share + share) for extra, share in more))


def _is_meant(group: Group, designed: Iterable[Group]) -> bool:
    """Whether it is one of those, or another loop over batches of their sizes, as an evaluation's."""
    return any(
        one is group or (of_batch(one.first) and of_batch(group.first) and sizes(group) <= sizes(one))
        for one in designed
    )


def _consequences(facts: Facts, one: Group, other: Group) -> Iterable[Extra] | None:
    """Of a group that follows from another: another path brings other gradients, and clears others.

    A path that a condition chooses, which does not look at what varies in it, has one graph whatever becomes of that.
    """
    if _leads(one, other):
        return other.extras
    if not _varies_in(one, other):
        return None
    decides, varies = facts.place(other.first.condition).acting.code, one.place.acting.code
    asks = {node.id for node in nodes(decides, ast.Name)} & {node.id for node in nodes(varies, ast.Name)}
    chosen = decides.startswith(CONDITIONS) and one.sort == "argument" and not asks - {"self"}
    return other.extras[1:] if chosen else other.extras


def _leads(one: Group, other: Group) -> bool:
    if of_batch(one.first) or one.sort == "size":  # what is computed with its sizes: of its shape, or of arguments
        computed = other.sort in ("shape", "argument") and not (of_batch(other.first) or other.first.role)
        passes = of_batch(one.first) and other.first.role == "loop"  # over the tensor
        return (computed or passes) and not other.first.name and len(taken := sizes(other)) > 1 and taken <= sizes(one)
    if one.sort == "shape" and grows(one) and other.sort == "argument" and not (other.first.role or other.first.name):
        taken = sizes(other)  # in a graph that a read ends before; the first length is no growth
        return len(taken) > HABIT and len(taken - sizes(one)) <= 1
    if grows(one) and other.sort == "operation":  # the turn before: there, what grows had not yet come to be
        return one.place.at == other.place.at and one.first.against in {e.record.program for e in other.extras}
    if one.name == SLICE and other.sort == "argument" and not other.first.role:  # what the line makes of the slice
        return one.place.at == other.place.at and is_length(other.first.subject)
    if one.first.role == "shared" and other.sort == "scalar" and not other.first.role:
        return (one.place.at, one.first.subject) == (other.place.at, other.first.subject)  # one tensor holds both
    if one.sort == "operation" and other.first.role == "shared" and ".step(" in other.place.acting.code:
        return _of_barriers(one, other)  # an optimizer's numbers: parameters without a gradient make fewer steps
    if one.sort != "operation" or one.first.role not in ("", "loop") or other.first.role not in ("grad", "zero_grad"):
        return False
    return _of_barriers(one, other)


def _of_barriers(one: Group, other: Group) -> bool:
    """Whether another path changed before, or in, all graphs of ``other``, at their barriers."""
    since: dict[int, int] = {}
    for extra in one.extras:
        since.setdefault(extra.record.stack, extra.record.t)
    return all(since.get(extra.record.stack, extra.record.t + 1) <= extra.record.t for extra in other.extras)


def _varies_in(one: Group, other: Group) -> bool:
    """Whether ``one`` changes within operations that came or went in all graphs of ``other``: it is none of them, then
    some, then more."""
    if other.sort != "operation" or other.first.role or (one.sort == "operation" and one.first.role != "loop"):
        return False
    return one is not other and all(any(_within(e.record, extra.record) for e in one.extras) for extra in other.extras)


def _needed(group: Group) -> Group:
    """Without graphs that an optimizer's state made necessary anyway, but where they tell of another value; of a line
    that is reached once more each time without those that another path of it made necessary."""
    if group.sort in VALUED:
        return group
    if again := comes_again(group):
        return group._replace(extras=tuple(again))
    return group._replace(extras=tuple(extra for extra in group.extras if extra.share) or group.extras)


def _within(record: CompileRecord, path: CompileRecord) -> bool:
    """Whether ``record`` parts from, or is, the graph that has the operations of ``path``, where these stand."""
    change, came = record.change, path.change
    if change is None or came is None or not path.parts or not path.parts[0].size:
        return False
    having = path.program if came.added >= came.removed else came.against
    at = change.position - came.position
    return having in (change.against, record.program) and record is not path and 0 <= at <= path.parts[0].size


def _place(facts: Facts, record: CompileRecord, change: Change) -> Place:
    """The line to show: for a shape or dtype the one that made the tensor, else the operation's."""
    if change.role == "pending":
        return beside(facts.names, change.stack, record.stack)
    if change.what in ("shape", "dtype"):
        made = facts.place(change.made)
        if made.line:
            return made
        loader = facts.place(record.stack)
        if of_batch(change) and loader.acting.code.startswith(LOOPS):
            return loader  # a loader's thread brought it
    place = facts.place(change.stack)
    return place if place.line else facts.place(record.stack)


def _cause(facts: Facts, change: Change) -> tuple[str, str]:
    """The sort, and a name that distinguishes it from other causes at one line."""
    if change.what == "shape":
        rank = "rank" if len(dims(change.old)) != len(dims(change.new)) else ""
        return "shape", rank or ("" if change.made else change.subject)
    if change.what == "scalar":
        return "scalar", f"{change.subject} {change.role}"
    if change.what == "operation":
        inner = facts.place(change.made)
        return "operation", f"{change.role} {inner.code or inner.line or change.subject}"
    if is_bound(change):
        return "argument", SLICE  # one slice has two bounds, and which of them is new is chance
    # a list that the host chooses: its tensors are other ones, some made in this graph
    return "inputs" if is_chosen(change) else change.what, change.subject


def _defect(facts: Facts, record: CompileRecord, change: Change | None) -> Change | None:
    """The change that made this compile, if the compile was unnecessary."""
    if record.trigger == "ahead":
        return None
    if record.trigger == "read" and not (change is not None and change.what == "evicted"):
        sized = any(is_sized(facts.text(op)) for place, op in facts.run.reads if place == record.stack)
        repeated, own = in_loop(facts, record.stack), is_own_graph(facts, record)
        if sized:
            return None  # reported with the selection, without which there is no such graph
        if repeated < HABIT and facts.run.sites[record.stack].compiles <= HABIT:
            return None  # results read at the end; a model that is copied to the host before the first step
        if own and repeated >= HABIT:
            return None  # the read's finding has the cost of its own graph
        if any(place == record.stack for place, _ in facts.run.fallbacks):
            return None  # the fallback's finding has the cost of the graphs of its inputs
    if change is None or change.what == "evicted":
        return change
    if change.role == "state":
        return None
    if record.trigger == "dynamo" and change.role != "dynamic":
        return None  # Dynamo reports why it captured another graph
    if record.nth < visits_per_pass(facts, record.stack) and not _ends_a_librarys_loop(facts, record, change):
        return None  # the first graph of this barrier, or of each of its visits in a step
    if _warms_up(facts, record):
        return None
    if _begins_as_number(change):
        return None
    if settles(facts, record, change):
        return None
    if pending := left_pending(facts, record):
        return msgspec.structs.replace(change, role="turn", stack=pending, made=pending, expected=0)
    if any(leaves_element(facts, reads, record) for reads in facts.once(habits)):
        return None  # the read's finding has its cost
    if before := entry(facts, record, change):
        held = msgspec.structs.replace(change, role="entry", stack=before, made=before, expected=0)
        return held if entered(facts, record.stack, holder(record, held)) else None
    return change


def _side_by_side(facts: Facts) -> frozenset[tuple[int, int]]:
    """Programs of two reads, the later one first, that no barrier lies between: of one trace."""
    found: set[tuple[int, int]] = set()
    reads: dict[int, None] = {}
    for stack, program in facts.run.cuts:
        if stack in facts.barriers:
            reads.clear()
        elif program not in reads and len(reads) < KEPT:
            found.update((program, before) for before in reads)
            reads[program] = None
    return frozenset(found)


def is_of_another_value(facts: Facts, record: CompileRecord, change: Change) -> bool:
    """Whether another value is read than before, of other operations or rank: in one trace there is no other path."""
    if change.what == "shape":
        other = len(dims(change.old)) != len(dims(change.new))
    elif change.role:  # numbers and operations of training
        other = change.what in ("operation", "argument")
    else:
        other = change.what == "operation" and change.added > 0 < change.removed
    return other and (record.program, change.against) in facts.once(_side_by_side)


def _before_the_read(facts: Facts, change: Change) -> Change:
    """What is used after a read, where that did not decide it: a read's own graph had changed in it before, or it is
    recorded after the read in a turn, with the number that was read, or computed from it."""
    if change.subject != USED:
        return change
    read, used = facts.names.bracket(change.stack, change.expected)
    number = _USED_NUMBER.fullmatch(change.old), _USED_NUMBER.fullmatch(change.new)
    if all(number) and (read.file, read.func) == (used.file, used.func) and 0 < read.line <= used.line:
        (operation, argument, old), (_, _, new) = (one.groups() for one in number if one is not None)
        fields = {"old": old, "new": new, "subject": f"{argument} of {operation}", "stack": change.expected}
        return msgspec.structs.replace(change, what="argument", **fields)
    line = facts.place(change.expected).at
    for one in facts.run.compiles:
        before = one.change
        numbers = before is not None and before.what in ("argument", "scalar") and not takes_element(one)
        if before is None or one.trigger != "read" or not numbers:
            continue
        argument, _, operation = before.subject.partition(" of ")
        went = tuple(f"{operation} ({argument} {value})" for value in (before.old, before.new))
        if went == (change.old, change.new) and facts.place(before.stack).at == line:
            return msgspec.structs.replace(before, against=change.against)
    return change


def _ends_a_librarys_loop(facts: Facts, record: CompileRecord, change: Change) -> bool:
    """Whether another barrier below the same line of the user's ended the graph of another shape: a last batch."""
    here = facts.place(record.stack)
    others = (facts.place(one.stack) for one in facts.run.compiles if one.program == change.against)
    beside = any(there.at == here.at and there != here for there in others)
    return change.what == "shape" and bool(here.library) and beside


def _warms_up(facts: Facts, record: CompileRecord) -> bool:
    """Whether the barrier makes graphs for others: each visit compiles one, which runs elsewhere, too."""
    site = facts.run.sites.get(record.stack)
    if site is None or record.trigger == "read" or not 1 < site.compiles == site.executed <= _WARMED:
        return False
    made = [one.program for one in facts.run.compiles if one.stack == record.stack]
    return all(facts.run.program_runs.get(program, 0) > 1 for program in made)


def _ages(facts: Facts) -> dict[int, int]:
    """By program: runs of its work before, such as of a generator's steps; visits of its barrier where none is known.

    A graph that was compared with no other is the first of its work.
    """
    found: dict[int, int] = {}
    for record in facts.run.compiles:
        change = record.change
        against = change.against if change is not None else 0
        before = found[against] + facts.run.program_runs.get(against, 0) if against in found else record.visits
        found.setdefault(record.program, before if change is not None else 0)
    return found


def _begins_as_number(change: Change) -> bool:
    """Whether a number of the program had become a tensor by the next pass, or is that number again in a new loop.

    ``total += loss`` adds to a tensor in place, and to a number not.
    """
    old, new = change.old, change.new
    if change.what == "operation":
        return not change.role and old != new and old.rstrip("_") == new.rstrip("_")
    return change.what == "argument" and old.startswith("value ") is not new.startswith("value ")


def _left_over(facts: Facts, record: CompileRecord) -> Change | None:
    """What a graph holds of a loop beside the barrier's, as an evaluation, that no barrier ended: it is still pending.

    It is as much as half a step.
    """
    change = record.change
    if change is None or record.trigger in ("read", "dynamo") or change.what != "operation" or change.role:
        return None
    size = max((part.size for part in record.parts if part.change == change), default=0)
    decided = facts.place(change.condition).acting.code.startswith(CONDITIONS)
    if decided or size < MOST * (record.ops - size) or change.removed > MOST * change.added:
        return None
    is_beside = beside(facts.names, change.made, record.stack).line
    return msgspec.structs.replace(change, role="pending", stack=change.made) if is_beside else None
