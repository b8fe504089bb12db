"""One step, explained: what of it each line cost, what was compiled in it, which findings it has, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.names import Names
from xlaprof.analysis.places import short
from xlaprof.analysis.timeline.kept import KeptWindow
from xlaprof.analysis.views.course import Bar
from xlaprof.analysis.views.details import Again, Details, Graph, LineCost, by_line, changed
from xlaprof.analysis.views.drawn import HOST, told_of
from xlaprof.analysis.views.in_step import InStep, in_step, own
from xlaprof.analysis.views.lanes import Lanes, label, place_of
from xlaprof.text.quantities import duration, times

LINES = 200
_Line = tuple[str, int]


class Moment(msgspec.Struct, frozen=True):
    """A step, or some that are one bar. Lengths in ``lines`` are seconds of all of them."""

    bar: Bar
    why: str = ""  # of the largest part: "because graph 3 was compiled: shape of tokens: i64[8] -> i64[5], ..."
    lines: tuple[LineCost, ...] = ()  # what took host time by line, the dearest first
    graphs: tuple[int, ...] = ()  # programs compiled in it
    findings: frozenset[str] = frozenset()  # ids of those that have a line in it
    inside: InStep | None = None

    @property
    def told(self) -> str:
        """In a sentence: "step 21: 10.0 s, compile 9.80 s, because graph 3 was compiled: ..."."""
        parts = [f"{self.bar.title}: {duration(self.bar.mean_s)}"]
        parts += [f"{name} {duration(seconds)}" for name, seconds in self.bar.named()[:1]]
        return ", ".join([*parts, *filter(None, [self.why])])


def moment(
    bar: Bar,
    lanes: Lanes,
    window: KeptWindow,
    names: Names,
    begin: int,
    details: Details,
    findings: Iterable[Finding],
) -> Moment:
    """What is known of ``bar``. ``lanes`` and the settled ``window`` of the whole run, which began at ``begin`` ns."""
    start = begin + round(bar.start_s * 1e9)
    end = start + round(bar.spans_s * 1e9)
    lines = tuple(_lines(lanes, names, start, end))
    graphs = [one for one in details.graphs if bar.first <= one.step <= bar.last]
    again = [one for function in details.functions for one in function.again if bar.first <= one.step <= bar.last]
    again += [one for one in details.jax if bar.first <= one.step <= bar.last]
    seen = {one.place.at for one in lines} | {one.place.at for one in again}
    seen |= {place.at for graph in graphs for _, place in graph.places}
    return Moment(
        bar,
        why=_why(bar, lines, graphs, again),
        lines=lines,
        graphs=tuple(one.program for one in graphs),
        findings=frozenset(one.id for one in findings if one.place.at in seen),
        inside=in_step(bar, lanes, window, names, start, end),
    )


def _why(bar: Bar, lines: tuple[LineCost, ...], graphs: list[Graph], again: list[Again]) -> str:
    part = next(iter(bar.named()), ("", 0.0))[0]
    if part == "compile" and graphs:
        one = max(graphs, key=lambda graph: graph.compile_s)
        if not one.what:
            return f"because graph {one.program} was compiled, which is unlike all before, at {short(one.place)}"
        place = one.places[0][1] if one.places else one.place
        change = changed(one.what, one.subject, one.old, one.new)
        return f"because graph {one.program} was compiled: {change}, at {short(place)}"
    if part == "compile" and again:
        last = max(again, key=lambda other: other.compile_s)
        change = f": {last.told}" if last.told else ""
        return f"because {last.name} was compiled again{change}, called at {short(last.place)}"
    found = next((cost.place for cost in lines if cost.items[0][0] == part), None)
    if found is None:
        return ""
    return f"because of {short(found)}" + (f": {found.code}" if found.code else "")


def _lines(lanes: Lanes, names: Names, start: int, end: int) -> Iterator[LineCost]:
    """Host time by line; what happened within something else, as a compile within a barrier, is not counted twice."""
    sums: dict[tuple[_Line, str, str], list[int]] = {}
    places: dict[_Line, Place] = {}
    for key, row in lanes.spans.rows.items():
        for one, ns in own(row.within(start, end), start, end) if key[0] == HOST else ():
            about = told_of(one.detail)
            place = place_of(about, names)
            places.setdefault(place.at, place)
            held = sums.setdefault((place.at, one.kind.part, label(one.kind, about, names)), [0, 0])
            held[0] += ns
            held[1] += 1
    return by_line(
        (
            (places[line], part, ns, f"{text} {times(count)}" if count > 1 else text)
            for (line, part, text), (ns, count) in sums.items()
        ),
        LINES,
    )
