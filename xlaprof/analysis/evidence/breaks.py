"""Graph breaks that a user can mend, by line; and what a function is called where several have its name."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.fold.torch_compile import BreakTally
from xlaprof.analysis.model import Place
from xlaprof.analysis.places import short

Line = tuple[str, int]  # file, line


class Broken(msgspec.Struct):
    """The breaks at one line: what one statement does, whether it breaks a graph once or in several ways.

    With those of the same reason at the line beside it, and so on, and with all readings of a clock in one function,
    which are one measurement.
    """

    places: list[Place]
    by: dict[tuple[int, str], BreakTally] = {}  # by stack and reason, in order of appearance

    @property
    def tallies(self) -> list[BreakTally]:
        return list(self.by.values())

    @property
    def reasons(self) -> set[str]:
        return {one.event.reason for one in self.tallies}

    @property
    def reads_a_clock(self) -> bool:
        return all(reason.startswith("time.") for reason in self.reasons)

    @property
    def functions(self) -> set[tuple[int, int]]:
        """Those that are cut, or given up: stack of the definition, name."""
        return {part[:2] for one in self.tallies for part in one.cut | one.plain}

    @property
    def callers(self) -> set[int]:
        """Stack ids of the lines that called the compiled functions."""
        return set().union(*(one.callers for one in self.tallies))


def broken(facts: Facts) -> dict[Line, Broken]:
    """Graph breaks by line, without those by design."""
    lines: dict[Line, Broken] = {}
    ended = ending(facts)
    for (stack, reason), tally in facts.run.torch_compile.breaks.items():
        if tally.event.compile in ended and tally.event.skipped:
            continue
        if tally.event.by_design or (tally.event.at and not captured(facts, tally.callers)):
            continue
        place = facts.place(stack)
        # without a line nothing says that two breaks are one statement's
        here = lines.setdefault((place.file, place.line or -len(lines)), Broken([place]))
        here.by[stack, reason] = tally
    return lines


def ending(facts: Facts) -> frozenset[str]:
    """Compile ids of the compilations whose failure ended the program: nothing ran without them."""
    error = facts.run.end.error if facts.run.end is not None else ""
    return frozenset(one.compile for one in facts.run.torch_compile.failed if error and one.fail == error)


def causes(facts: Facts) -> list[Broken]:
    """Graph breaks by cause, without those by design."""
    found: list[Broken] = []
    for here in broken(facts).values():
        file, line = here.places[0].file, here.places[0].line
        beside = [(file, line - 1), (file, line + 1)] if line else []
        for other in found:
            same = other.reasons == here.reasons and other.functions & here.functions
            if same and (here.reads_a_clock or any(place.at in beside for place in other.places)):
                other.places += here.places
                other.by |= here.by
                break
        else:
            found.append(here)
    return found


def leading(facts: Facts, several: list[Broken]) -> list[int]:
    """For each the position of those whose fix ends it, too: its own, where nothing else's does."""
    first = list(range(len(several)))
    for at, here in enumerate(several):
        others = (
            n for n, one in enumerate(several) if first[n] != at and one is not here and _follows(facts, here, one)
        )
        first[at] = first[next(others, at)]
        first = [first[at] if one == at else one for one in first]
    return first


def _follows(facts: Facts, here: Broken, other: Broken) -> bool:
    """Whether the fix of others ends these breaks, too.

    They lie in what the line of the others calls behind those: in plain Python, on what was read there. Or only
    functions that are compiled by themselves for the others meet them: in the whole, before it came to the others, they
    cut nothing.
    """
    line = other.places[0].file, other.places[0].line
    behind = {facts.place(part[2]) for one in here.tallies for part in one.cut | one.plain}
    through = (facts.names.frames(stack)[1:] for stack, _ in here.by)
    within = bool(line[1]) and all(line in [place.at for place in places] for places in (behind, *through))
    return within or _was_passed(facts, here, other)


def _was_passed(facts: Facts, here: Broken, other: Broken) -> bool:
    """Whether the graph that the others cut first had what breaks here in it: these functions were called before the
    function with the line of the others, and are none that the program's line calls itself."""
    calls, functions = facts.run.torch_compile.calls, facts.run.torch_compile.functions
    began, lines = min(one.event.t for one in other.tallies), {facts.place(stack) for stack, _ in other.by}
    met = [
        functions[key].spans[0][0]
        for key in other.functions
        if key in functions and any(facts.text(key[1]) == line.func.rpartition(".")[2] for line in lines)
    ]
    of_calls = {calls[stack].first.code for stack in here.callers if stack in calls}
    return (
        bool(met)
        and all(began < one.event.t < min(met) for one in here.tallies)
        and here.callers <= other.callers
        and of_calls.isdisjoint(code for code, _ in here.functions)
    )


def captured(facts: Facts, callers: Iterable[int]) -> int:
    """Operations captured in all for calls from these lines."""
    calls = facts.run.torch_compile.calls
    return sum(calls[stack].ops for stack in callers if stack in calls)


def function_name(facts: Facts, code: int, func: int) -> str:
    """The name of a function; with its line where another function of the run has that name. "": it is not known."""
    name, place = facts.text(func), facts.place(code)
    others = (facts.place(other) for other, text in facts.run.torch_compile.functions if text == func)
    if place.line and any(other.at != place.at for other in others):
        return f"{name} ({short(place)})"
    return name
