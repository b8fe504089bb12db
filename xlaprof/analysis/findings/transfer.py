"""transfer: a loop that reads values from the device, and stops until they are there.

:mod:`xlaprof.analysis.evidence.reads` decides which reads these are, and their cost. Reads inside a CPU fallback, and
reads of a size that values decide, belong to the fallback.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.evidence.reading import advise_read
from xlaprof.analysis.evidence.reads import Reads, by_line
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.places import named
from xlaprof.text.quantities import duration, times


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line that reads in the loop."""
    for reads in by_line(facts, sized=False):
        if reads.is_habit(facts):
            yield _finding(facts, reads)


def _finding(facts: Facts, reads: Reads) -> Finding:
    tally, place = reads.tally, reads.place
    way = advise_read(reads.op, reads.via, place.acting.code, _seldom(facts, reads), facts.words)
    per_read = tally.dur / max(1, tally.count) / 1e9
    barrier = _barrier_after(facts, reads)
    purpose = f" {way.purpose}" if way.purpose else ""
    apart = f"; it comes before the barrier ({named(barrier)}), so the graph up to here runs once more" * bool(
        barrier.line
    )
    after = f", after the barrier ({named(barrier)})" * bool(barrier.line and "barrier" not in way.advice)
    late = f"{tally.late:,} more cost nothing: the device had been given more to do"
    return facts.finding(
        "transfer",
        place,
        operation=reads.op,
        count=reads.count,
        counted=reads.counted,
        cost_s=reads.cost_s,
        cut=reads.cut,
        cause=(
            f"{_capital(way.name)} reads {way.what} from the device {how_often(facts, reads)}{purpose}, and the host "
            f"stops until it is computed: {times(reads.count)}, {duration(tally.dur / 1e9)} waited "
            f"({duration(per_read)} each), and the device has nothing to do until the host has caught up{apart}."
        ),
        advice=f"{way.advice}{after}.",
        evidence=(reads.waited(), f"longest {duration(tally.most / 1e9)}", *([late] if tally.late else [])),
        confidence="high" if tally.known else "medium",
        rhythm=rhythm_of(facts, reads),
        also=(barrier,) if barrier.line else (),
        remedy=way.remedy,
    )


def how_often(facts: Facts, reads: Reads) -> str:
    """ "in every step", "every 5 steps", "3 times a step", "in the loop"."""
    text = rhythm_of(facts, reads)
    if text and reads.tally.rhythm.steps > 1:
        return f"in {text}" if text == "every step" else text
    return "in the loop"


def rhythm_of(facts: Facts, reads: Reads) -> str:
    """ "every step", "3 times a step"; empty where steps are not known."""
    return reads.tally.rhythm.text() if facts.step_count else ""


def _seldom(facts: Facts, reads: Reads) -> int:
    """The number of steps between the reads to advise: at least ten times as many as now."""
    enough: int = 10 ** (len(str(max(1, facts.step_count))) - 1)
    every = reads.tally.rhythm.every
    return max(10, enough, 10 * every if every > 1 else 0)


def _barrier_after(facts: Facts, reads: Reads) -> Place:
    """The barrier whose graph these reads compute in part beforehand; NOWHERE where there is none."""
    cut = [record.again for record in facts.run.compiles if record.trigger == "read" and record.stack in reads.stacks]
    if not reads.alone or (cut and not any(cut)):
        return NOWHERE
    sites = facts.run.sites
    barriers = [stack for stack, site in sites.items() if site.trigger != "read" and site.executed >= 3]
    barrier = max(barriers, key=lambda stack: sites[stack].executed, default=0)
    return facts.names.bracket(reads.stacks[0], barrier)[1] if barrier else NOWHERE


def _capital(text: str) -> str:
    return text if "(" in text else text[:1].upper() + text[1:]  # float() is written so


KIND = Kind(find, unit_of=("max_transfers_per_step",), blamed_for=("max_idle",))
