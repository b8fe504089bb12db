"""excess_barriers: a step cut into more graphs than it needs.

Two shapes of it are known: barriers at several lines of a step that leave little between them, and one barrier for
every micro-batch where the optimizer runs only every few of them. Cost: the host time of the barriers too many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.evidence.looping import turns
from xlaprof.analysis.fold.tallies import CompileRecord
from xlaprof.analysis.model import Finding, Moment, Place
from xlaprof.analysis.whatif import critical
from xlaprof.events import AnyEvent, Barrier, Execute
from xlaprof.text.quantities import duration, times

LINES = 3  # barriers at different lines in one step
_SMALL = 200  # operations between two
_PER_STEP = 2  # times a step that a barrier inside the model is reached
_OPTIMIZER = frozenset({"optimizer", "state"})  # roles of its operations


def find(facts: Facts) -> Iterator[Finding]:
    """At most one finding of each shape."""
    scattered = list(_scattered(facts))
    yield from scattered or _in_forward(facts)
    yield from _accumulating(facts)


def _accumulating(facts: Facts) -> Iterator[Finding]:
    """Graphs with the optimizer's step and, more often, graphs without take turns at one barrier."""
    runs = facts.run.program_runs
    for barrier in dict.fromkeys(record.stack for record in facts.run.compiles):
        records = [record for record in facts.run.compiles if record.stack == barrier]
        updates = next((found for record in records if (found := _updating(facts, record)) is not None), None)
        if updates is None:
            continue
        (line, program), site = updates, facts.run.sites[barrier]
        updating = _alike(records, program)
        steps = sum(runs.get(one, 0) for one in updating)
        if steps < 2 or site.executed < 2 * steps:
            continue
        count = site.executed - steps
        cost = site.dispatch.percentile(0.5) * count / 1e9  # what is compiled has findings of its own
        yield facts.finding(
            "excess_barriers",
            facts.names.place(barrier),
            count=count,
            counted=Runs(barrier, frozenset(updating)),
            cost_s=cost,
            cause=(
                f"The barrier is reached {site.executed} times but the optimizer (line {line.line}) runs only "
                f"{steps} times: {count} of the graphs hold one micro-batch each, {duration(cost)} of host time."
            ),
            advice=f"Put the barrier right after the optimizer's step (line {line.line}): one graph then holds it all.",
            discriminator="accumulation",
        )


def _updating(facts: Facts, record: CompileRecord) -> tuple[Place, int] | None:
    """Of two graphs that differ in nothing but the optimizer's step: its line, and the program that has it.

    A generator's whole step, recorded into every third step of the critic, is no accumulation of gradients. Nor is an
    optimizer that goes another way than in its first step, which had its state to make: both ran at this line.
    """
    change = record.change
    if change is None or change.what != "operation":
        return None
    came, gone = facts.names.place(change.stack), facts.names.place(change.expected)
    if came == gone or (change.against and change.role not in _OPTIMIZER and ".step(" in came.code):
        return None
    if ".step(" in came.code and change.removed <= change.added:
        return came, record.program
    if ".step(" in gone.code and change.removed > change.added:
        return gone, change.against
    return None


def _alike(records: list[CompileRecord], program: int) -> set[int]:
    """``program``, and what has an optimizer's step as it has: with other shapes or numbers, or the state made."""
    found = {program}
    for record in records:
        change = record.change
        if change is None or change.against not in found:
            continue
        if change.what != "operation" or change.role == "state":
            found.add(record.program)
    return found


def _in_forward(facts: Facts) -> Iterator[Finding]:
    """A barrier inside a module's forward, or in a hook that modules call: it cuts every step, between layers."""
    names = facts.names
    sites = {stack: site for stack, site in facts.run.sites.items() if site.trigger != "read" and site.executed >= 3}
    inside = {
        stack: site
        for stack, site in sites.items()
        if ".forward" in f".{names.place(stack).func}" or turns(facts.run, stack) >= _PER_STEP
    }
    rest = [site for stack, site in sites.items() if stack not in inside]
    steps = max((site.executed for site in rest), default=0)
    for stack, site in inside.items():
        if site.executed < max(3, _PER_STEP * steps) or site.ops > _SMALL * site.executed:
            continue
        place = names.place(stack)
        cost = site.dispatch.total / 1e9
        per_step = f"{site.executed / steps:.0f} times a step" if steps else times(site.executed)
        yield facts.finding(
            "excess_barriers",
            place,
            count=site.executed,
            counted=Barriers(frozenset([stack])),
            cost_s=cost,
            cut=critical.barriers([stack]),
            cause=(
                f"A barrier {_where(facts, stack, place)} cuts the graph {per_step}, into pieces of "
                f"{round(site.ops / site.executed)} operations: XLA cannot fuse across them and each costs the host "
                f"{duration(cost / site.executed)}."
            ),
            advice="Remove this barrier, and keep the one at the end of the step.",
            rhythm=per_step if steps else "",
            discriminator="forward",
        )


def _where(facts: Facts, stack: int, place: Place) -> str:
    if ".forward" in f".{place.func}":
        return f"inside the model ({place.func})"
    caller = facts.names.frames(stack)[1]
    return f"in {place.func}, a hook that line {caller.line} calls again and again,"


def _scattered(facts: Facts) -> Iterator[Finding]:
    """Several barriers a step; told at the one that cuts off least."""
    steps = facts.step_count
    if steps < 3:
        return
    sites = {
        stack: site
        for stack, site in facts.run.sites.items()
        if site.trigger != "read" and (site.in_steps if facts.named_steps else site.executed) >= 0.8 * steps
    }
    lines = {(place.file, place.line) for place in map(facts.names.place, sites)}
    visits = sum(site.executed for site in sites.values())
    ops = sum(site.ops for site in sites.values())
    if len(lines) < LINES or ops > _SMALL * visits:
        return
    smallest = min(sites, key=lambda stack: sites[stack].ops / sites[stack].executed)
    largest = max(sites.values(), key=lambda site: site.ops / site.executed)
    excess = [stack for stack, site in sites.items() if site is not largest]
    cost = sum(sites[stack].dispatch.total for stack in excess) / 1e9
    count = visits - largest.executed
    per_step = round(visits / steps)
    numbers = sorted(line for _, line in lines)
    yield facts.finding(
        "excess_barriers",
        facts.names.place(smallest),
        count=count,
        counted=Barriers(frozenset(excess)),
        cost_s=cost,
        cut=critical.barriers(excess),
        cause=(
            f"Each step is cut into {per_step} graphs of {round(ops / visits)} operations on average, by barriers at "
            f"lines {', '.join(map(str, numbers))}: XLA cannot fuse across them and each costs the host "
            f"{duration(cost / max(1, count))}."
        ),
        advice=f"Keep the barrier at the end of the step (line {numbers[-1]}) and remove the others.",
    )


class Barriers(msgspec.Struct, frozen=True):
    """Barriers that ran something."""

    stacks: frozenset[int]

    def among(self, events: Iterable[AnyEvent], since_step: int | None) -> Iterator[Moment]:
        for event in events:
            if isinstance(event, Barrier) and event.execution and event.stack in self.stacks:
                yield Moment(event.t, event.dur, detail=f"{event.ops:,} operations")


class Runs(msgspec.Struct, frozen=True):
    """Executions at one barrier, without those of some programs."""

    stack: int
    but: frozenset[int]

    def among(self, events: Iterable[AnyEvent], since_step: int | None) -> Iterator[Moment]:
        for event in events:
            if isinstance(event, Execute) and event.stack == self.stack and event.program not in self.but:
                yield Moment(event.t, event.end - event.start)


KIND = Kind(
    find,
    blamed_for=("max_idle",),
)
