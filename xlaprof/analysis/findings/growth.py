"""growth: the device's memory, the number of tensors or the time of a step rises from step to step.

The place is the line that adds to the list or dict which retains the tensors, where that is known; else the line that
made them. Graphs that grow are a kind of their own. A false alarm is worse than a late one: only long, steady, large
rises count. A list of detached numbers does not count: the advice is to keep just that.

Cost: of slower steps the time above that of the first ones; memory has no cost in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.fold.alive import Reading
from xlaprof.analysis.fold.fold import Fold
from xlaprof.analysis.fold.series import climb, rise
from xlaprof.analysis.fold.totals import INFERRED
from xlaprof.analysis.model import Finding, Moment, Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.principles import NAMED
from xlaprof.events import AnyEvent, Kept, Live
from xlaprof.text.quantities import duration, plural, size_text

_STEPS = 100  # in fewer no trend shows, and a list of results may be as long as it is meant to be
_STEPS_OF_MANY = 30  # enough where each step leaves more than its results: a history, or what its layers made
_WARM_UP = 0.2  # of the steps, in which caches and optimizers fill
_SLOWER = 1.3  # times the first steps: below that a machine that heats up is as slow
_LARGER, _BYTES = 1.25, 1 << 20  # times the first reading, and bytes more: less is how an allocator rounds
_MORE, _EACH_STEP = 1.5, 2.5  # the same in tensors; and tensors per step: the results of one are fewer
_NUMBER = 32  # bytes of each, at least: a log of numbers, or of a few together, has less
_LITTLE = 1 << 14  # bytes of all that is more: so little of anything is a log
_APPENDS = r"(?P<before>.+\.append\()(?P<name>[\w.()]+)\)"


def find(facts: Facts) -> Iterator[Finding]:
    """At most one finding for what is alive, and one for each name of steps."""
    alive = _alive(facts)
    if alive is not None:
        yield alive
    yield from _slower(facts, alive)


def _alive(facts: Facts) -> Finding | None:
    readings = facts.run.alive.readings.values
    if not readings:
        return None
    first, last = readings[0], readings[-1]
    passed, came, bytes_more = last.step - first.step, last.tensors - first.tensors, last.bytes - first.bytes
    tensors = climb([(one.step, one.tensors) for one in readings])
    size = climb([(one.step, one.bytes) for one in readings])
    heavier = size is not None and size.last >= _LARGER * size.first and size.last - size.first >= _BYTES
    several = came >= _EACH_STEP * passed
    more = several and tensors is not None and tensors.last >= _MORE * tensors.first
    more = more and bytes_more >= max(_LITTLE, _NUMBER * came)
    held = [(facts.place(stack), count) for stack, count, _ in facts.run.alive.held]
    made = held[0][0] if held else NOWHERE
    kept = facts.run.alive.kept
    history = kept.history if kept is not None else len({line for line, _ in held}) >= NAMED
    # a list that holds no history may be meant; where neither keeper nor line is known, nobody could look
    early = several and (history or heavier or (kept is None and made.line > 0))
    if passed < (_STEPS_OF_MANY if early else _STEPS) or not (heavier or more):
        return None
    puts = [facts.place(stack) for stack in kept.puts] if kept is not None else []
    place = made if made in puts or not puts else puts[0]
    many = plural(first.tensors, "tensor")
    numbers = f"from {many} ({size_text(first.bytes)}) to {last.tensors:,} ({size_text(last.bytes)})"
    return facts.finding(
        "growth",
        place,
        count=passed,
        counted=Rises(),
        cost_s=0.0,
        cause=(
            f"What is alive on the device grows all the time, {numbers} in {plural(passed, 'step')}"
            f"{_why(kept, place, made, history=history)}."
        ),
        advice=_advice(kept, history=history),
        evidence=(
            *(f"line {one.line}: {one.code} ({count} of the tensors looked at)" for one, count in held if one.line),
            *((f"{kept.path} had {plural(kept.length, 'element')} when it was looked at",) if kept is not None else ()),
        ),
        confidence="high" if place.line else "medium",
        rhythm="every step",
        also=(*(line for line, _ in held), *puts),
        remedy=_remedy(place) if history else "",
        discriminator="alive",
    )


def _why(kept: Kept | None, place: Place, made: Place, *, history: bool) -> str:
    """The clause on the tensors that stay, and on the container that retains them."""
    what = ", with all that its gradient needs," if history else ""
    if kept is None:
        where = f"; what stays was made at line {made.line}" if made.line else ""
        return f"{where}{what} and something keeps it, a list or an attribute"
    adds = f", to which line {place.line} adds," if kept.puts and place != made else ""
    return f": the {kept.kind} {kept.path}{adds} keeps what line {made.line} made{what.rstrip(',')}"


def _advice(kept: Kept | None, *, history: bool) -> str:
    if kept is None or history:
        return (
            "Keep a detached copy (.detach()), or the number read now and then, and let go of what earlier steps made."
        )
    limit = "collections.deque(maxlen=...)" if kept.kind == "list" else "a largest size"
    return f"Let go of what {kept.path} has no more use for (give it a limit: {limit}), or keep it on the host."


def _remedy(place: Place) -> str:
    """The line with a detached tensor, where it appends one by its name."""
    found = re.fullmatch(_APPENDS, place.code)
    before, name = (found["before"], found["name"]) if found else ("losses.append(", "loss")
    return f"{before}{name}.detach())  # not: {before}{name})"


def _slower(facts: Facts, alive: Finding | None) -> Iterator[Finding]:
    for name, tally in facts.run.steps.items():
        series = tally.series
        slower = rise(series.values) if series.seen >= _STEPS else None
        if slower is None or slower.last < _SLOWER * slower.first:
            continue
        cost = max(0.0, tally.rest.total - slower.first * tally.rest.count) / 1e9
        # else the barrier reached most often: the step that is slower ends there
        ends = max(facts.run.sites, key=lambda stack: facts.run.sites[stack].executed, default=0)
        place = alive.place if alive is not None else facts.place(ends)
        called = f"Steps '{facts.text(name)}'" if name else "Steps"
        because = "; so does what is alive on the device" if alive is not None else ""
        yield facts.finding(
            "growth",
            place,
            operation=facts.text(name),
            count=series.seen,
            counted=Steps(name),
            cost_s=cost,
            cause=(
                f"{called} get slower all the time, from {duration(slower.first / 1e9)} "
                f"to {duration(slower.last / 1e9)} over {series.seen:,} of them{because}."
            ),
            advice=(
                "Look for something that grows with the number of steps: a list that each step goes through, a history "
                "that is kept, or a file that is read from its beginning."
            ),
            confidence="medium",
            rhythm="every step",
            discriminator="time",
        )


class Rises(msgspec.Struct, frozen=True):
    """Readings of the live tensors; each counts the steps since the one before."""

    def among(self, batches: Iterable[Sequence[AnyEvent]]) -> Iterator[Moment]:
        fold = Fold()
        latest: Reading | None = None
        for event in chain.from_iterable(batches):
            fold.feed(event)
            if isinstance(event, Live) and fold.alive.readings.values and fold.alive.readings.values[-1] is not latest:
                before, latest = latest, fold.alive.readings.values[-1]
                if before is not None:
                    yield Moment(event.t, 0, latest.step - before.step, plural(latest.tensors, "tensor"))


class Steps(msgspec.Struct, frozen=True):
    """The steps of a name, without the first."""

    name: int = INFERRED

    def among(self, batches: Iterable[Sequence[AnyEvent]]) -> Iterator[Moment]:
        fold = Fold()
        seen = 0
        for event in chain.from_iterable(batches):
            fold.feed(event)
            tally = fold.steps.get(self.name)
            if tally is not None and tally.series.seen > seen:
                seen = tally.series.seen
                end: int = getattr(event, "t", 0) + getattr(event, "dur", 0)
                yield Moment(end - tally.recent[-1], tally.recent[-1])


KIND = Kind(find, blamed_for=("max_memory",))
