"""excess_barriers: a step cut into more graphs than it needs.

It has four shapes: barriers at several lines of a step with little between them; a barrier inside the model; one in a
loop over tensors, such as parameters; and a barrier after every micro-batch, where the optimizer runs after several. It
is none where the run, played again without these barriers, compiles more graphs or longer than they cost. Cost: the
host time of the excess barriers, and of compiling their graphs what one larger graph would not take.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from xlaprof.analysis.evidence.counted import Matching
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.evidence.looping import SMALL, host_s, in_each_step, row_of, visits_per_pass
from xlaprof.analysis.fold.tallies import CompileRecord, Site
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.names import head
from xlaprof.analysis.places import named
from xlaprof.analysis.principles import FELT, HABIT, WORTH_SAYING
from xlaprof.analysis.whatif import barriers, replay
from xlaprof.events import Barrier, Execute
from xlaprof.text.quantities import duration, plural, times

_PER_STEP = 2  # visits in each step of a barrier inside the model
_SAID_S = 0.001  # compiling that is shorter is not told
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
        cost = host_s(site) * count / site.executed
        if site.ops > SMALL * site.executed and cost < FELT * facts.working_s:
            continue
        between = frozenset((barrier, one) for one in runs if one not in updating)
        if not barriers.without_those(facts.run, between.__contains__).pays(cost):
            continue
        yield facts.finding(
            "excess_barriers",
            facts.place(barrier),
            count=count,
            counted=Matching(Execute, ("stack", "program"), between),
            cost_s=cost,
            cause=(
                f"The barrier is reached {times(site.executed)} but the optimizer (line {line.line}) runs only "
                f"{times(steps)}: {count} of the graphs hold one micro-batch each, {duration(cost)} of host time."
            ),
            advice=f"Put the barrier right after the optimizer's step (line {line.line}): one graph then holds it all.",
            discriminator="accumulation",
        )


def _updating(facts: Facts, record: CompileRecord) -> tuple[Place, int] | None:
    """The line of the optimizer's step and the program that holds it, where two graphs differ only in that.

    Two cases are no accumulation of gradients: every third graph of a critic holds the generator's whole step; the
    optimizer makes its state in its first step only, so that both graphs ran the line.
    """
    change = record.change
    if change is None or change.what != "operation":
        return None
    came, gone = facts.place(change.stack), facts.place(change.expected)
    if came == gone or (change.against and change.role not in _OPTIMIZER and ".step(" in came.code):
        return None
    if ".step(" in came.code and change.removed <= change.added:
        return came, record.program
    if ".step(" in gone.code and change.removed > change.added:
        return gone, change.against
    return None


def _alike(records: list[CompileRecord], program: int) -> set[int]:
    """``program``, and programs of the same optimizer's step with other shapes or numbers, or once it has state."""
    found = {program}
    for record in records:
        change = record.change
        if change is None or change.against not in found:
            continue
        if change.what != "operation" or change.role == "state":
            found.add(record.program)
    return found


def _in_forward(facts: Facts) -> Iterator[Finding]:
    """A barrier in a module's forward, in a hook that modules call or in a loop over tensors: it cuts every step."""
    names = facts.names
    sites = {stack: site for stack, site in facts.barriers.items() if site.executed >= HABIT}
    inside = {
        stack: site
        for stack, site in sites.items()
        if ".forward" in f".{names.place(stack).func}" or visits_per_pass(facts, stack) >= _PER_STEP
    }
    outside = {stack: site.executed for stack, site in sites.items() if stack not in inside}
    for stack, site in inside.items():
        steps = max((count for one, count in outside.items() if names.shares_loop(stack, one)), default=0)
        if site.executed < _PER_STEP * steps or site.ops > SMALL * site.executed:
            continue
        place = names.place(stack)
        row = row_of(facts, stack)
        cost = host_s(site) * (1 - 1 / len(row) if row else 1)  # a barrier after the loop stays
        goes = {(stack, program) for program in facts.ran_at.get(stack, ())} - {(stack, row[-1]) for _ in row}
        if not barriers.without_those(facts.run, goes.__contains__).pays(cost):
            continue
        loop = names.loop(stack)
        alone, apart = _apart(facts, goes)
        bare = list(_bare(facts, stack))
        each = round(site.executed / steps) if steps else len(row)
        per_step = f"{times(each)} a step" if each else times(site.executed)
        yield facts.finding(
            "excess_barriers",
            place,
            count=site.executed,
            counted=_ran([stack]),
            cost_s=cost + alone,
            cut=replay.together((_cut(site, stack, cost), apart)),
            cause=(
                f"A barrier {_where(facts, stack, place)} cuts the graph {per_step}, into pieces of "
                f"{plural(round(site.ops / site.executed), 'operation')}: XLA cannot fuse across them and each costs "
                f"the host {duration(host_s(site) / site.executed)}{_compiled(alone)}."
            ),
            advice=(
                f"Call it once, after the loop at {named(loop)}: one graph then holds all {len(row)} turns."
                if row
                else f"Remove this barrier, and keep the one at the end of the step.{_needed(facts, bare)}"
            ),
            also=(loop,) if row else bare,
            rhythm=per_step if each else "",
            discriminator="forward",
        )


def _bare(facts: Facts, stack: int) -> Iterator[Place]:
    """Loops around other uses of a barrier's line, as an evaluation's, that have no other barrier."""
    names, line, around = facts.names, facts.place(stack), facts.names.heads(stack)
    others = {one for one in facts.run.sites if names.place(one).at == line.at}
    barred = {head(names.loop(one)) for one in facts.barriers if one not in others}
    for one in others - {stack}:
        loops = [loop for loop in names.loops(one) if head(loop) not in around]
        if loops and not any(head(loop) in barred for loop in loops):
            yield loops[0]


def _needed(facts: Facts, bare: list[Place]) -> str:
    """The sentence on loops that would have no barrier without this one."""
    if not bare:
        return ""
    loops = " and ".join(dict.fromkeys(map(named, bare)))
    return (
        f" The loop at {loops} has no other: call {facts.words.barrier} at the end of its turns, or what is read there "
        "is compiled with all that came before it."
    )


def _apart(facts: Facts, goes: Container[tuple[int, int]]) -> tuple[float, replay.Cut]:
    """Seconds to compile the graphs that go (barrier, program), beyond those of their operations in a larger graph."""
    _, each = max(((one.ops, one.dur / max(1, one.ops)) for one in facts.run.compiles), default=(0, 0.0))
    own = [record for record in facts.run.compiles if (record.stack, record.program) in goes and record.dur]
    kept = [(record, min(1.0, each * record.ops / record.dur)) for record in own]
    alone = sum(record.dur * (1 - share) for record, share in kept) / 1e9
    return alone, replay.together(replay.compiles([record], share, recorded=True) for record, share in kept)


def _compiled(alone: float) -> str:
    return f", and compiling them apart takes {duration(alone)}" * (alone >= _SAID_S)


def _cut(site: Site, stack: int, cost_s: float) -> replay.Cut:
    """The usual time of its visits goes. Longer ones, as while the device computes on the host's processors, do not."""
    return replay.barriers([stack], 1 - min(1.0, cost_s * 1e9 / max(1, site.dispatch.total)))


def _where(facts: Facts, stack: int, place: Place) -> str:
    if row_of(facts, stack):
        return f"in a loop ({facts.names.loop(stack).acting.code.rstrip(':')})"
    if ".forward" in f".{place.func}":
        return f"inside the model ({place.func})"
    caller = facts.names.frames(stack)[1]
    return f"in {place.func}, a hook that line {caller.line} calls again and again,"


def _scattered(facts: Facts) -> Iterator[Finding]:
    """Several barriers in a step, of several lines or of one that is called again. The place is the one that cuts most
    often, or of those the one that cuts off least; not the last, which stays."""
    steps, sites = facts.step_count, in_each_step(facts)
    if steps < HABIT or len(sites) < HABIT:
        return
    lines = sorted({facts.place(stack).line for stack in sites})
    visits = sum(site.executed for site in sites.values())
    ops = sum(site.ops for site in sites.values())
    goes_first = [stack for stack in sites if facts.place(stack).line < lines[-1]] or [*sites]
    most = min(goes_first, key=lambda stack: (-sites[stack].executed, sites[stack].ops / sites[stack].executed))
    largest = max(sites.values(), key=lambda site: site.ops / site.executed)
    excess = [stack for stack, site in sites.items() if site is not largest]
    cost = sum(host_s(sites[stack]) for stack in excess)
    goes = [_cut(sites[stack], stack, host_s(sites[stack])) for stack in excess]
    if ops > SMALL * visits:
        if len(lines) < HABIT or cost < FELT * facts.working_s:
            return
        if facts.what_if.gain_s(replay.together(goes)) < WORTH_SAYING * cost:
            return  # the device had work meanwhile
    gone = facts.what_if.gain_s(replay.barriers(excess, 0.0))  # with the visits that take long: of some it is the load
    if not barriers.without(facts.run, excess).pays(max(cost, gone)):
        return
    alone, apart = _apart(facts, {(stack, program) for stack in excess for program in facts.ran_at.get(stack, ())})
    count = visits - largest.executed
    per_step = round(visits / steps)
    where = f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}"
    yield facts.finding(
        "excess_barriers",
        facts.place(most),
        count=count,
        counted=_ran(excess),
        cost_s=cost + alone,
        cut=replay.together((*goes, apart)),
        cause=(
            f"Each step is cut into {per_step} graphs of {plural(round(ops / visits), 'operation')} on average, by "
            f"barriers at {where}: XLA cannot fuse across them and each costs the host "
            f"{duration(cost / max(1, count))}{_compiled(alone)}."
        ),
        advice=f"Keep the barrier at the end of the step (line {lines[-1]}) and remove the others.",
    )


def _ran(stacks: Iterable[int]) -> Matching:
    """The barriers at these stacks that ran something: nothing is pending at the others."""
    keys = frozenset((stack,) for stack in stacks)
    return Matching(Barrier, ("stack",), keys, "ops", nonzero="execution")


KIND = Kind(find, blamed_for=("max_idle",))
