"""Calls of the loop that never reach what torch.compile compiled, and take much of the time of its turns.

Without a device only looks at the main thread tell: of all that a line of a function calls which also calls compiled
code. What the line does by itself, a backward pass or an optimizer's step, is the program's own work; so is what is
called once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from xlaprof.analysis.evidence.activities import innermost
from xlaprof.analysis.evidence.counted import Matching
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.places import cited
from xlaprof.analysis.principles import DEAR, LOOKED_NS, MOST, WORTH_SAYING
from xlaprof.events import Look
from xlaprof.text.quantities import duration, percent

_SAVES = "checkpoint"


def running_ns(facts: Facts) -> float:
    """The time that neither imports nor compiling took."""
    imports = sum(ns for (_, state), ns in facts.run.looks_before.items() if state == "import")
    compiling = sum(one.dur for one in facts.run.torch_compile.functions.values())
    return max(1.0, facts.wall_s * 1e9 - imports - compiling)


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each such line."""
    names, running = facts.names, running_ns(facts)
    spine = _spine(facts)
    functions, lines = {one[:2] for one in spine}, {(one[0], one[2]) for one in spine}
    calls: defaultdict[Place, Counter[tuple[int, str]]] = defaultdict(Counter)
    for (stack, state), ns in facts.run.looks_before.items():
        frames = names.frames(stack)
        line = next((one for one in frames if (one.file, one.func) in functions), None)
        if line is not None and line != frames[0] and line.loop and line.at not in lines and state != "import":
            calls[line][stack, state] += ns
    for line, looks in calls.items():
        took = looks.total()
        if took >= max(LOOKED_NS, DEAR * running, WORTH_SAYING * facts.wall_s * 1e9):
            yield _finding(facts, line, looks, running)


def looked_up(finding: Finding) -> frozenset[tuple[int | str, ...]]:
    """Stack and state of the looks that a finding here counts; empty for any other."""
    counted = finding.counted
    return counted.keys if isinstance(counted, Matching) and counted.event is Look else frozenset()


def _spine(facts: Facts) -> set[tuple[str, str, int]]:
    """The lines that call what is compiled, and those that call them: file, function, line."""
    known = facts.run.torch_compile
    stacks = [*known.calls, *(one.event.stack for one in known.recompiles)]
    return {(one.file, one.func, one.line) for stack in stacks for one in facts.names.frames(stack)}


def _finding(facts: Facts, line: Place, looks: Counter[tuple[int, str]], running: float) -> Finding:
    took, states, stacks = looks.total(), Counter[str](), Counter[int]()
    for (stack, state), ns in looks.items():
        states[state] += ns
        stacks[stack] += ns
    place = innermost(facts.names, stacks, line)
    most = f", most of it at {cited(place)}" if place.at != line.at else ""
    if states[_SAVES] >= MOST * took:
        advice = (
            "Save less often: keep a copy of what is the best so far in memory, and write it at the end of an epoch; "
            "or write it in a background thread."
        )
    else:
        advice = (
            "Do once what is the same in each turn; work on whole arrays, or on many rows at a time, in place of a "
            "loop over elements, and with sums that go on in place of sums begun anew; or do it less often."
        )
    return facts.finding(
        "idle_gap",
        place,
        operation=_SAVES if states[_SAVES] >= MOST * took else "",
        count=sum(facts.run.look_counts[key] for key in looks),
        counted=Matching(Look, ("stack", "state"), frozenset(looks), detail="state"),
        cost_s=took / 1e9,
        cause=(
            f"What is compiled waits in each turn for what is called at {cited(line)}{most}: {duration(took / 1e9)}, "
            f"by looks at the main thread, {percent(took / running)} of the time that neither compiling nor imports "
            "took."
        ),
        advice=advice,
        confidence="medium",
        also=(line,),
    )
