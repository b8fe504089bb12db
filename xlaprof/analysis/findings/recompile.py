"""recompile: a graph compiled again although its code had run before.

One finding for each line and cause, with all the compiles it caused. :mod:`xlaprof.analysis.recompiles.extra` decides
which compiles those are, and which are warm-up. Cost: the compile time.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.evidence.counted import Known
from xlaprof.analysis.evidence.facts import Facts, listed
from xlaprof.analysis.evidence.guard_failures import sorting, told
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.evidence.reads import decider, element_read
from xlaprof.analysis.fold.tallies import CompileRecord
from xlaprof.analysis.model import Finding, FromTo, Moment, Place
from xlaprof.analysis.places import is_head
from xlaprof.analysis.principles import HABIT, TRIFLE
from xlaprof.analysis.recompiles import growth
from xlaprof.analysis.recompiles.advice import advise
from xlaprof.analysis.recompiles.along import passes
from xlaprof.analysis.recompiles.explanation import explanation
from xlaprof.analysis.recompiles.extra import groups
from xlaprof.analysis.recompiles.group import (
    Extra,
    Group,
    grows,
    is_bound,
    is_carried,
    of_batch,
    other_slices,
    same_number,
    values,
    window_of,
)
from xlaprof.analysis.recompiles.jitted import told as jitted
from xlaprof.analysis.recompiles.varying import made_by, varying
from xlaprof.analysis.recompiles.wording import operator
from xlaprof.analysis.torch_tpu import again
from xlaprof.analysis.whatif import replay
from xlaprof.text.quantities import duration

#: roles of operations that only some micro-batches have
_ACCUMULATED = frozenset({"grad", "optimizer"})
#: roles of what a graph holds of before: its own operations are recorded all the same, for the graph of the others
_HELD = frozenset({"entry", "pending", "turn"})
#: sorts of changes that the code makes, not what it is given; and roles of those that who calls it chooses
_WRITTEN = frozenset({"operation", "outputs", "inputs", "aliasing", "size"})
_CHOSEN = frozenset({"mode", "autocast", "loop"})


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line and cause."""
    for group in facts.once(groups):
        yield _finding(facts, group)
    yield from told.find(facts)
    yield from jitted.find(facts)
    yield from again.find(facts)


def _finding(facts: Facts, group: Group) -> Finding:
    change = group.first
    count = len(group.extras)
    moments, evidence = [], []
    for record, went in ((extra.record, _went(extra)) for extra in group.extras):
        when = f"step {record.step}" if record.step >= 0 else "before the first step"
        moments.append(Moment(record.t, record.dur, detail=went))
        evidence.append(f"{when}: {duration(record.dur / 1e9)}, {went}")
    rhythm = _rhythm(facts, group)
    advice = advise(facts, group)
    computed = group.sort == "scalar" and not change.name  # of no setting of the program's
    # a path, or a number of the program's, that a value may decide on
    decided = group.sort in ("operation", "scalar", "argument") and change.role in ("", "loop", "shared")
    decides = decider(facts, change, group.place) if decided else None
    taken = element_read(facts, (one.record for one in group.extras), group.place) if group.sort == "argument" else None
    ended_by = ("decides", decides.place.acting.at) if decides is not None else None
    if change.role == "entry" and not is_head(group.place):  # one barrier before its loop ends all
        ended_by = ("entry", facts.names.loop(group.extras[0].record.stack).acting.at)
    return facts.finding(
        "recompile",
        group.place,
        operation=operator(change),
        count=count,
        counted=Known(tuple(moments)),
        cost_s=group.cost_s,
        cut=replay.together(
            replay.compiles([record], 1 - share, recorded=change.role in _HELD or is_carried(facts, group))
            for record, share in _avoidable(facts, group)
        ),
        of_the_line=(group.sort in _WRITTEN and change.role not in _CHOSEN) or computed,
        # where a library computes one number that is special once, others of its are equal to it then
        trifle=count == 1 and (group.cost_s < TRIFLE * facts.wall_s or (computed and bool(group.place.library))),
        cause=explanation(facts, group, rhythm),
        advice=advice.text,
        change=FromTo(what=change.what, old=change.old, new=change.new),
        evidence=listed(evidence),
        discriminator=f"{group.sort} {group.name}",
        confidence=_confidence(group),
        rhythm=rhythm,
        also=_also(facts, group),
        values=values(facts, group),
        remedy=advice.remedy,
        buckets=advice.buckets,
        ended_by=("elements", taken.place.acting.at) if taken is not None else ended_by,
    )


def _went(extra: Extra) -> str:
    """What changed in a graph, in short."""
    return window_of(extra).went if is_bound(extra.change) else f"{extra.change.old} -> {extra.change.new}"


def _avoidable(facts: Facts, group: Group) -> list[tuple[CompileRecord, float]]:
    """The compiles that a fix makes unnecessary, and the share of each that this cause bears."""
    found = [(extra.record, extra.share) for extra in group.extras]
    if group.first.role == "barrier":  # without the barrier none of its graphs is needed
        known = {id(record) for record, _ in found}
        found += [(r, 1.0) for r in facts.run.compiles if r.stack == group.first.stack and id(r) not in known]
    if group.first.role in _ACCUMULATED:  # one graph, larger than any of them, then holds their work
        found = [one for one in found if not _is_largest(facts, one[0])]
    return found


def _is_largest(facts: Facts, record: CompileRecord) -> bool:
    """Whether this is the largest of the graphs that take turns at a barrier, and runs in few of the turns."""
    largest = max(one.ops for one in facts.run.compiles if one.stack == record.stack)
    turns = facts.run.sites[record.stack].executed if record.stack in facts.run.sites else 0
    return 2 * facts.run.program_runs.get(record.program, 0) <= turns and record.ops == largest


def _rhythm(facts: Facts, group: Group) -> str:
    """How often the graph runs that this change made: "every 4 steps"."""
    if len(group.extras) > 1 or group.sort not in ("operation", "outputs", "inputs"):
        return ""
    record, rhythms = group.extras[0].record, facts.run.program_rhythms
    rhythm, other = rhythms.get(record.program), rhythms.get(group.first.against)
    if rhythm is None or rhythm.steps < HABIT:
        return ""
    if other is not None and not group.extras[0].back:
        return f"from step {record.step} on" if record.step > 0 else ""
    rarer = other is None or rhythm.steps <= other.steps
    return rhythm.text(facts.outer_steps) if rarer else ""


def _confidence(group: Group) -> str:
    """High where the tape names the change; medium where the cause is concluded, as of other operations or inputs."""
    change = group.first
    if group.sort == "operation" and change.role in ("", "mode", "backward") and not change.condition:
        return "medium"
    if group.sort in ("inputs", "aliasing") or (group.sort == "outputs" and not change.name):
        return "medium"
    return "high"


def _also(facts: Facts, group: Group) -> Iterator[Place]:
    """Other lines that take part: the condition, the branch not taken, the operation that reads what changed."""
    change = group.first
    yield made_by(facts, change)
    yield from map(facts.place, (change.condition, change.made, change.stack, change.expected))
    yield from (one.place for one in varying(facts, group))
    yield from growth.grown_too(facts, group) if group.sort == "shape" and grows(group) else ()
    if group.sort in ("argument", "scalar"):
        yield from same_number(facts, group)
        yield from other_slices(facts, group)
    if of_batch(change):  # and loops over it
        yield from passes(facts, group)


KIND = Kind(
    find,
    unit_of=("max_recompiles", "max_compiles", "max_compile_time"),
    blamed_for=("max_transfers_per_step", "max_idle"),
    leads=sorting.hit_a_limit,
)
