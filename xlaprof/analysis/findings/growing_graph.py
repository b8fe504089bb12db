"""growing_graph: every graph is larger than the one before it. Cost: the time its compiles took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.evidence.looping import GROWTHS, grows, innermost
from xlaprof.analysis.fold.tallies import CompileRecord, Site
from xlaprof.analysis.model import Finding, Moment, Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.whatif import critical
from xlaprof.events import AnyEvent, Barrier, Compile
from xlaprof.text.quantities import duration

_MOSTLY = 0.8  # of the compiles, those in which one line recorded more
#: changes that are recompiles: a graph of other inputs, not of more work
_TOLD = ("inputs", "shape", "outputs", "size")


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each barrier or read whose graphs grow."""
    for stack, site in facts.run.sites.items():
        if not grows(site):
            continue
        visits, before, after = site.longest_growth
        again = [record for record in facts.run.compiles if record.stack == stack and record.nth]
        if again and all(record.change is not None and record.change.what in _TOLD for record in again):
            continue
        cost = sum(record.dur for record in again) / 1e9
        cut = critical.compiles(again)
        place = facts.names.place(stack)
        each = (after - before) / visits
        grew = f"grew {visits} times in a row, from {before:,} to {after:,} operations ({each:,.0f} more each time)"
        if site.trigger == "read":
            loop = innermost(facts.names, stack)
            line = f" at line {place.line}" if place.line else ""
            yield facts.finding(
                "growing_graph",
                loop if loop.line else place,
                count=visits,
                counted=Growths(stack),
                cost_s=cost,
                cut=cut,
                cause=(
                    f"No barrier ends a step, so each read{line} runs what all steps before it recorded, too: its "
                    f"graph {grew} and is compiled anew ({duration(cost)} in all)."
                ),
                advice=f"Call {facts.words.barrier} at the end of every step, and read after it.",
                rhythm="every step",
                also=(place,) if loop.line else (),
                remedy=f"{loop.code}\n    ...\n    {facts.words.barrier_code}" if loop.line else "",
            )
            continue
        source = _grows(facts, again)
        here = "ends here" if not source.line else f"ends at line {place.line}"
        more = f"; what is more of it each time is recorded here ({source.code})" if source.line else ""
        yield facts.finding(
            "growing_graph",
            source if source.line else place,
            count=visits,
            counted=Growths(stack),
            cost_s=cost,
            cut=cut,
            cause=(
                f"The graph that {here} {grew}, so each is compiled anew ({duration(cost)} in all): a step carries "
                f"on what the steps before it recorded{more}."
            ),
            also=(place,) if source.line else (),
            advice=(
                "Detach what is carried from step to step (.detach()) and end every step with a barrier, so that "
                "each graph starts from computed tensors."
            ),
            rhythm="every step",
            remedy="hidden = hidden.detach()  # before the next step",
        )


def _grows(facts: Facts, again: list[CompileRecord]) -> Place:
    """The line at which each graph has operations more than the one before; nowhere where it is not always the same."""
    more = [record.change for record in again if record.change is not None and record.change.added]
    lines = Counter(facts.names.place(change.stack) for change in more if change.what == "operation")
    line, count = lines.most_common(1)[0] if lines else (NOWHERE, 0)
    return line if count >= GROWTHS and count >= _MOSTLY * len(again) else NOWHERE


class Growths(msgspec.Struct, frozen=True):
    """The longest row of graphs, ended at one place, of which each is larger than the one before."""

    stack: int

    def among(self, events: Iterable[AnyEvent], since_step: int | None) -> Iterator[Moment]:
        site = Site()
        row: list[Moment] = []
        longest: list[Moment] = []
        for event in events:
            if not isinstance(event, Barrier | Compile) or event.stack != self.stack:
                continue
            before = site.grew
            if isinstance(event, Barrier) and event.execution:
                site.ran((event.ops,))
            elif isinstance(event, Compile) and event.trigger == "read":
                site.grow(event.ops)
            if site.grew > before:
                row.append(Moment(event.t, event.dur, detail=f"{event.ops:,} operations"))
                longest = row if len(row) > len(longest) else longest
            elif site.grew < before:
                row = []
        return iter(longest)


KIND = Kind(
    find,
    blamed_for=("max_recompiles", "max_compiles", "max_compile_time", "max_idle", "max_memory"),
)
