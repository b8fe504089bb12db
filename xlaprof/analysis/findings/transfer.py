"""transfer: a loop that reads values from the device, and stops until they are there.

:mod:`xlaprof.analysis.evidence.reads` decides which reads these are, and their cost. Reads inside a CPU fallback, and
reads of a size that values decide, belong to the fallback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.evidence.loop_entry import LOOPS
from xlaprof.analysis.evidence.reading import ELEMENTS, LATER, LOOKED_UP, ONCE, advise_read
from xlaprof.analysis.evidence.reads import (
    Reads,
    goes_over,
    habits,
    has_own,
    loop_within_step,
    takes_elements,
    takes_of_the_same,
    takes_outside,
)
from xlaprof.analysis.model import Finding, FromTo, Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.places import named
from xlaprof.analysis.principles import HABIT, LARGE, MANY
from xlaprof.analysis.recompiles.extra import groups
from xlaprof.analysis.uses import is_called_back
from xlaprof.text.quantities import duration
from xlaprof.vocabulary import fill

_WIDEST = 8  # bytes of a number at most


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line that reads in the loop."""
    found = facts.once(habits)
    recompiled = {extra.record.t for group in facts.once(groups) for extra in group.extras} if found else set()
    for reads in found:
        reads.add_graphs(facts, recompiled)
        yield _finding(facts, reads)


def _finding(facts: Facts, reads: Reads) -> Finding:
    tally, place = reads.tally, reads.place
    often = _how_often(facts, reads)
    turns = loop_within_step(facts, reads.stacks[0])
    turns = turns if turns.acting.code.startswith("while ") else NOWHERE
    seldom = tally.rhythm.every > 1 or reads.is_mostly_work
    many = tally.bytes >= _WIDEST * MANY * (tally.count - tally.digest_count) > 0
    code = place.acting.code
    head = facts.names.loop(reads.stacks[0]).acting.code
    takers = facts.names.takers(reads.stacks[0]) or (head,)  # recordings of earlier versions have the loop's head alone
    func = place.acting.func
    way = advise_read(reads.op, reads.via, code, often, facts.words, turns, takers, func, seldom=seldom, many=many)
    read, barrier = facts.names.bracket(reads.stacks[0], reads.barrier) if reads.barrier else (NOWHERE, NOWHERE)
    follows = _follows(read, barrier)
    of_the_same = sum(takes_of_the_same(one, reads.barrier, way.at_once) for one in reads.graphs)
    taken = takes_elements(facts, reads) or of_the_same > 1
    several = reads.count >= HABIT * max(1, facts.step_count)
    elements = taken or (several and (takes_outside(facts, place) or goes_over(facts, place)))
    if elements:
        at_once = fill(ELEMENTS, to_host=facts.words.to_host).removesuffix(".")
        way = way._replace(advice=at_once, remedy="", is_when=False, purpose="")
    back = is_called_back(code, takers, func)
    if back:
        at_once = "Only a search that runs on the device itself needs no read: what calls this function goes on by it"
        way = way._replace(advice=at_once, remedy="", is_when=False, purpose="for what calls its function back")
    purpose = f" {way.purpose}" if way.purpose else ""
    after = f", after the barrier ({named(barrier)})" * bool(
        barrier.line and way.is_when and "barrier" not in way.advice and not follows
    )
    # nothing else ends the turns of its loop
    alone = often == ONCE and not reads.barrier and not elements and has_own(facts, reads.stacks[0])
    if alone and facts.words.barrier and ("after the loop" in way.advice or reads.graphs):
        after = f"; end every turn of the loop with {facts.words.barrier}, before a read"
    name = (
        way.name if re.search(r"[(_]", way.name) else way.name[:1].upper() + way.name[1:]
    )  # float() and options are written so
    late = f"{tally.late:,} more cost nothing: the device had been given more to do"
    return facts.finding(
        "transfer",
        place,
        operation=reads.op,
        count=reads.count,
        counted=reads.counted,
        cost_s=reads.cost_s,
        cut=reads.cut,
        # a program without barriers runs ahead of the device, and waits in the end for what it does not wait for here
        gain_s=None if facts.barriers else reads.cost_s,
        cause=(
            f"{name} reads {way.what} from the device {how_often(facts, reads)}{purpose}, and the host "
            f"stops until it is computed: {reads.how_long()}, and the device has nothing to do until the host has "
            f"caught up{_apart(reads, barrier, follows, taken)}."
        ),
        advice=f"{way.advice}{after}.",
        change=FromTo("operation", "the graph up to the barrier", "the graph up to this read")
        if reads.barrier and reads.graphs
        else None,
        evidence=(reads.waited(), f"longest {duration(tally.most / 1e9)}", *([late] if tally.late else [])),
        confidence="high" if tally.known else "medium",
        rhythm=facts.often(tally.rhythm),
        in_steps=tally.rhythm.steps,
        also=(barrier, turns),
        remedy=way.remedy,
        # what calls back, or writes text, was chosen, and needs the value: told where that may have been done unawares
        trifle=True if (back or way.purpose == LOOKED_UP) and reads.cost_s < LARGE * facts.total_s else None,
        ended_by=way.option or ("elements" if taken else "decides", place.acting.at),
    )


def _follows(read: Place, barrier: Place) -> bool:
    """Whether the read's line comes after the barrier's in a turn; a loader's barrier, at the head, ends the turn."""
    together = (read.file, read.func) == (barrier.file, barrier.func)
    return together and read.line > barrier.line > 0 and not barrier.acting.code.startswith(LOOPS)


def _apart(reads: Reads, barrier: Place, follows: bool, taken: bool) -> str:
    """The clause on the graph that the reads need for themselves."""
    compiled = sum(record.dur for record in reads.graphs) / 1e9
    which = "a graph of its own" if len(reads.graphs) == 1 else f"{len(reads.graphs)} graphs of its own"
    own = f", as {which} that took {duration(compiled)} to compile" if compiled else ""
    if taken and not reads.barrier:
        return own and f"; each turn takes another element out{own}"
    if not reads.barrier:
        return own and f"; no barrier ends a turn of its loop, so what a read computed is computed once more{own}"
    line = f" ({named(barrier)})" if barrier.line else ""
    if follows:
        return f"; it comes after the barrier{line}, and what is computed since then for it runs by itself{own}"
    return f"; it comes before the barrier{line}, so the graph up to here runs once more{own}"


def how_often(facts: Facts, reads: Reads) -> str:
    """ "in every step", "every 5 steps", "3 times a step", "in the loop"."""
    text = facts.often(reads.tally.rhythm)
    if text and reads.tally.rhythm.steps > 1:
        return f"in {text}" if text == "every step" else text
    return "in the loop"


def _how_often(facts: Facts, reads: Reads) -> int:
    """The number of steps between the reads to advise, :data:`LATER` or :data:`ONCE`."""
    if reads.is_between_steps(facts):
        return ONCE
    if reads.tally.rhythm.every > 1:
        return LATER
    enough: int = 10 ** (len(str(max(1, facts.step_count))) - 1)
    return max(10, enough)


KIND = Kind(find, unit_of=("max_transfers_per_step",), blamed_for=("max_compiles", "max_compile_time", "max_idle"))
