"""frozen: something was compiled, or refused, after ``xlaprof.frozen`` had frozen the program.

One finding for each line and function. It leads: who writes frozen() asks for none. It has no cost of its own: what the
compilations took is in its cause, and other findings account for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.evidence.counted import Known
from xlaprof.analysis.evidence.facts import Facts, listed
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.fold.frozen import FrozenRecord
from xlaprof.analysis.model import Finding, Moment
from xlaprof.analysis.sums import grouped
from xlaprof.text.quantities import duration, times


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line and function."""
    records = facts.run.frozen.records
    for group in grouped(records, lambda one: (facts.place(one.event.stack).at, one.event.by, one.event.func)).values():
        yield _finding(facts, group)


def _finding(facts: Facts, group: list[FrozenRecord]) -> Finding:
    event = group[0].event
    cost = sum(record.dur for record in group) / 1e9
    refused = sum(record.event.refused for record in group)
    what = facts.text(event.func) or "a program"
    done = f"took {duration(cost)}" if not refused else f"were refused {times(refused)}"
    return facts.finding(
        "frozen",
        facts.place(event.stack),
        operation=event.by,
        count=len(group),
        counted=Known(tuple(Moment(one.event.t, one.dur, detail=one.event.why) for one in group)),
        cost_s=0.0,
        trifle=False,
        cause=(
            f"The program was frozen, and {event.by} was to compile {what} {times(len(group))}; these compilations "
            f"{done}. {event.why[:1].upper()}{event.why[1:]}."
        ),
        advice=(
            "Make this call during warm-up, with every shape, dtype and option that production has, or bring its "
            "arguments to one that was compiled then: pad, convert, leave out."
        ),
        evidence=listed([f"after {one.event.step} steps: {one.event.why}" for one in group]),
        discriminator=what,
    )


KIND = Kind(find, blamed_for=("max_recompiles", "max_compiles", "max_compile_time"), leads=lambda finding: True)
