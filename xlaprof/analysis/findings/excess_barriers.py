"""excess_barriers: a step cut into more graphs than it needs.

Two shapes of it are known: barriers at several lines of a step that leave little between them, and one barrier for
every micro-batch where the optimizer runs only every few of them. Cost: the host time of the barriers too many.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis import critical
from xlaprof.analysis.facts import Facts, seconds, times
from xlaprof.analysis.looping import turns
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.tallies import CompileRecord

LINES = 3  # barriers at different lines in one step
_SMALL = 200  # operations between two
_PER_STEP = 2  # times a step that a barrier inside the model is reached


def find(facts: Facts) -> Iterator[Finding]:
    """At most one finding of each shape."""
    scattered = list(_scattered(facts))
    yield from scattered or _in_forward(facts)
    yield from _accumulating(facts)


def _accumulating(facts: Facts) -> Iterator[Finding]:
    """A graph with the optimizer's step and, more often, one without take turns at one barrier."""
    runs = facts.run.program_runs
    seen = set()
    for record in facts.run.compiles:
        change = record.change
        if change is None or change.what != "operation" or record.stack in seen:
            continue
        line = facts.names.place(change.stack)
        site = facts.run.sites[record.stack]
        steps = runs.get(record.program, 0)
        if ".step(" not in line.code or steps < 2 or site.executed < 2 * steps:
            continue
        if not _adds_optimizer(facts, record):
            continue
        seen.add(record.stack)
        barrier = facts.names.place(record.stack)
        count = site.executed - steps
        cost = site.dispatch.percentile(0.5) * count / 1e9  # what is compiled has findings of its own
        yield facts.finding(
            "excess_barriers",
            barrier,
            count=count,
            cost_s=cost,
            cause=(
                f"The barrier is reached {site.executed} times but the optimizer (line {line.line}) runs only "
                f"{steps} times: {count} of the graphs hold one micro-batch each, {seconds(cost)} of host time."
            ),
            advice=f"Put the barrier right after the optimizer's step (line {line.line}): one graph then holds it all.",
            discriminator="accumulation",
        )


def _adds_optimizer(facts: Facts, record: CompileRecord) -> bool:
    """Whether the optimizer is all that the other graphs of the barrier lack: they have no optimizer of their own.

    A generator's whole step, recorded into every third step of the critic, is no accumulation of gradients.
    """
    compiled = {one.program: one for one in facts.run.compiles if one.stack == record.stack}
    for _ in compiled:
        change = record.change
        if change is None or change.what != "operation":
            return False
        if change.role != "state" or not change.removed:
            return change.role != "" or not change.against
        # the optimizer's second step, which its first one tells nothing of: how did that differ from the others?
        earlier = compiled.get(change.against)
        if earlier is None or earlier is record:
            return True
        record = earlier
    return True


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
            cost_s=cost,
            cut=critical.barriers([stack]),
            cause=(
                f"A barrier {_where(facts, stack, place)} cuts the graph {per_step}, into pieces of "
                f"{round(site.ops / site.executed)} operations: XLA cannot fuse across them and each costs the host "
                f"{seconds(cost / site.executed)}."
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
    cost = sum(site.dispatch.total for site in sites.values() if site is not largest) / 1e9
    count = visits - largest.executed
    per_step = round(visits / steps)
    numbers = sorted(line for _, line in lines)
    yield facts.finding(
        "excess_barriers",
        facts.names.place(smallest),
        count=count,
        cost_s=cost,
        cut=critical.barriers(stack for stack, site in sites.items() if site is not largest),
        cause=(
            f"Each step is cut into {per_step} graphs of {round(ops / visits)} operations on average, by barriers at "
            f"lines {', '.join(map(str, numbers))}: XLA cannot fuse across them and each costs the host "
            f"{seconds(cost / max(1, count))}."
        ),
        advice=f"Keep the barrier at the end of the step (line {numbers[-1]}) and remove the others.",
    )
