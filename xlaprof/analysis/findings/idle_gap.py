"""idle_gap: the device idles, again and again, while the host does something else.

This kind covers the program's own Python: a named scope, plain Python between two lines, waiting for data, a
checkpoint, garbage collection, a thread in the way. Idle time of compiles, reads and fallbacks belongs to their
findings; that of tracing and dispatch is part of every step.

A finding is a habit: it comes in most steps, or every N steps, or is long. Gaps of the first steps, gaps with a compile
and one long pause among short ones do not count; a loop over elements that each of a few epochs runs does. Cost: the
idle time blamed on it.

Without a device what torch.compile compiled waits for its batches: a quarter of the time that neither compiling nor
imports took is a finding, however long a first, cold compilation is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from heapq import nlargest
from operator import attrgetter
from typing import TypeGuard

import msgspec

from xlaprof.analysis.compiled.beside import calls_beside
from xlaprof.analysis.evidence.activities import (
    READER,
    Activity,
    activities,
    activity_of,
    copying,
    drawing,
    element_loop,
    filling,
    heaviest,
    innermost,
    is_at_one_line,
    is_librarys,
    load_ahead,
    maker_of,
    recording,
    workers_started,
)
from xlaprof.analysis.evidence.collecting import COLLECTS, asked, asked_for
from xlaprof.analysis.evidence.counted import Matching
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.evidence.library_options import whose
from xlaprof.analysis.fold.fold import Fold
from xlaprof.analysis.fold.tallies import PauseTally
from xlaprof.analysis.model import Finding, Moment, Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.places import cited, culprit, function, short, span, users
from xlaprof.analysis.principles import (
    DEAR,
    FELT,
    GLANCE_NS,
    HABIT,
    LARGE,
    LOOKED_NS,
    MOST,
    NEARLY_ALL,
    PART,
    WORTH_SAYING,
)
from xlaprof.analysis.recompiles.eager import bodies, jitted_calls
from xlaprof.analysis.statements import draws_one
from xlaprof.analysis.sums import grouped, merged
from xlaprof.analysis.timeline import host
from xlaprof.analysis.timeline.host import Segment
from xlaprof.analysis.timeline.idle import Cause, IdleBlame, Seen
from xlaprof.analysis.timeline.rhythm import in_all
from xlaprof.analysis.whatif import replay
from xlaprof.events import AnyEvent, DataWait, Gc
from xlaprof.text.quantities import duration, percent, plural

_Told = tuple[str, str, Place, str]  # what the host does, the advice, where, and the operation
_WORTH_NS = 20_000_000  # in all, or each where they come irregularly: less is the noise of any short run
_UNCONFIRMED_NS = 5_000_000  # mean length needed where no steps are known
_TRACES = re.compile(r"(?<!lax\.)\bscan(_layers)?\(")  # torch_xla's
_SELDOMER = (
    "Leave gc.collect() out of the loop, or call it once in many turns (between epochs): what nothing refers to any "
    "more is freed without it, and cycles are collected by themselves. gc.freeze() after the set-up leaves the rest "
    "little to look at."
)
_SEEN = 0.3  # share of the looks at what takes the time: at fewer it is one thing among many


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each scope, stretch of Python or other activity of the host, whichever lines of loops call it."""
    window = max(1, facts.uncompiling_s * 1e9)
    copies = {facts.place(one.event.stack).at for one in facts.once(copying)}  # in which XLA copies: a finding
    habits = [
        activity
        for activity in activities(facts.run)
        if _is_habit(facts, activity, window)
        and not (activity.kind == host.DISPATCH and heaviest(facts.names, activity).at in copies)
    ]
    for told, several in grouped(habits, partial(_explain, facts)).items():
        yield _finding(facts, activity_of(several), told, window)
    if facts.run.jit.functions and all(one.kind == host.GC for one in habits):  # what the device's work hides
        yield from calls_beside(facts)
    if not facts.run.devices() and facts.run.torch_compile.functions:
        yield from _waits_for_data(facts)
        yield from _collects(facts)
        yield from calls_beside(facts)


def _is_habit(facts: Facts, activity: Activity, window: float) -> bool:
    if activity.kind == host.GC and _is_asked_for(facts, activity, window):
        return True
    own = activity.own_tallies
    total = sum(tally.habit_total - min(tally.recorded, tally.habit_total) for tally in own)
    total -= min(total, _inside_statements(facts, activity))
    whole = activity.total if activity.kind == host.DATA else total  # measured beside a compile, too
    if whole < FELT * window or whole < _WORTH_NS:
        return False
    # what lies between operations outside of jitted functions is a part of running them so; a jitted call dispatches
    again = {facts.place(stack).at for stack, again in facts.run.sent if again}  # brings the same data, a finding
    of_jax = (facts.once(jitted_calls) - again).union(*(one.lines for one in facts.once(bodies).values()))
    shown = sum(ns for stack, ns in activity.lines.items() if facts.place(stack).at in of_jax)
    if shown > MOST * activity.lines.total():
        return False
    if _recorded_instead(facts, activity, total):
        return False
    rhythm = activity.rhythm
    times = max([rhythm.steps, *(tally.habit.count for tally in own)])
    longest = max(tally.habit_most for tally in own)
    if 1 < times < HABIT and longest <= NEARLY_ALL * total and _is_each_epochs(facts, activity, total, window):
        return True
    if times < HABIT or longest > MOST * total:
        return False
    mean = total / times
    mostly = rhythm.steps >= MOST * (rhythm.last - rhythm.first + 1) and rhythm.steps >= HABIT
    if not rhythm.steps:  # no steps are known
        return mean >= _UNCONFIRMED_NS
    if activity.kind == host.GIL and rhythm.steps >= PART * (rhythm.last - rhythm.first + 1):
        return True
    return mean >= _WORTH_NS or mostly or rhythm.every > 0


def _is_asked_for(facts: Facts, activity: Activity, window: float) -> bool:
    """Whether the program asks for collections so often that they are felt: measured beside a compile, too."""
    return min(asked(facts).total, activity.total) >= max(FELT * window, _WORTH_NS)


def _is_each_epochs(facts: Facts, activity: Activity, total: float, window: float) -> bool:
    """Whether it is a loop over elements, run more than once, that takes much of the time: no accident. Of a few epochs
    each has it, the last one's behind the last program, in no gap."""
    if activity.kind != host.OTHER or total < max(LOOKED_NS, DEAR * window, WORTH_SAYING * facts.wall_s * 1e9):
        return False
    return bool(filling(facts, activity).line)


def _has_line_between(facts: Facts, hole: tuple[int, int]) -> bool:
    """Whether a line of the program lies between two operations.

    Inside one statement, and between neighbouring ones, the host records, slowly where the machine is busy.
    """
    before, after = (place.acting for place in facts.names.bracket(*hole))
    same = (before.file, before.func) == (after.file, after.func)
    return not same or not 0 <= after.line - before.line <= 1


def _inside_statements(facts: Facts, activity: Activity) -> int:
    """ns between two operations of one statement, such as ``optimizer.step()``, unless a sample shows other lines.

    That is the recording of operations, however slow, which nothing moves out of the loop.
    """
    recorded = recording(facts.run)
    if activity.kind != host.OTHER or any(facts.place(stack) not in recorded for stack in activity.lines):
        return 0
    return sum(ns for hole, ns in activity.holes().items() if not _has_line_between(facts, hole))


def _recorded_instead(facts: Facts, activity: Activity, total: float) -> bool:
    """Whether the host, as far as known, spent a scope recording operations.

    The idle sampler looked into long gaps. Short ones are judged by the operations before and after them: with no line
    of the program between those, recording took the time.
    """
    if activity.kind != host.SCOPE:
        return False
    recorded = recording(facts.run)
    seen = sum(ns for stack, ns in activity.lines.items() if facts.place(stack) not in recorded)
    if facts.run.samples and total >= GLANCE_NS * activity.gaps:
        return seen < _SEEN * total
    if total < GLANCE_NS * activity.gaps and any(tally.recorded for tally in activity.own_tallies):
        hollow = sum(ns for hole, ns in activity.holes().items() if _has_line_between(facts, hole))
        return max(seen, hollow) < _SEEN * total
    return False


def _finding(facts: Facts, activity: Activity, told: _Told, window: float) -> Finding:
    cost, gaps = activity.total / 1e9, activity.gaps
    what, advice, place, operation = told
    longest = max(tally.most for tally in activity.causes.values()) / 1e9
    return facts.finding(
        "idle_gap",
        place,
        operation=operation,
        count=gaps,
        counted=IdleGaps(frozenset(activity.causes), gaps),
        cost_s=cost,
        cut=replay.doing(activity.causes),
        cause=(
            f"The device idles while the host {what}: {duration(cost)} in {plural(gaps, 'gap')}, "
            f"{percent(activity.total / window)} of the time that was not compiling."
        ),
        advice=advice,
        evidence=(f"{duration(cost / gaps)} each, longest {duration(longest)}", *_evidence(facts, activity)),
        confidence="medium" if activity.held_at() or not (activity.lines or _is_recorded(activity)) else "high",
        rhythm=_rhythm(facts, activity),
        also=(*activity.called, *([_longest_pause(facts, host.DATA)] if activity.kind == host.DATA else [])),
        ended_by=_upload(facts, activity, place) or _call(facts, activity),
        of_the_line=is_librarys(facts.run, activity, place),
    )


def _rhythm(facts: Facts, activity: Activity) -> str:
    if activity.kind == host.GC and (often := asked(facts).count):  # in steps with a compile, too
        return "every step" if facts.full_steps and in_all(often, facts.full_steps) else ""
    # a gap from one step into the next is the one's or the other's: of as many gaps as steps none is missing
    return activity.rhythm.text(0 if in_all(activity.gaps, facts.full_steps) else facts.full_steps)


def _upload(facts: Facts, activity: Activity, place: Place) -> tuple[str, tuple[str, int]] | None:
    """The line of a call that brings its arguments to the device, where that is all that was seen: one upload."""
    if activity.kind != host.DISPATCH or not place.line:
        return None
    sends = any(facts.place(stack).at == place.at for stack, _ in facts.run.sent)
    return ("upload", place.at) if sends else None


def _call(facts: Facts, activity: Activity) -> tuple[str, str, str, int] | None:
    """The one call in which it comes every N steps, with other work of it: what does not end the turns of the loop."""
    line, every = activity.line.acting, activity.rhythm.every
    ends = {(one.file, one.func) for one in (facts.place(barrier).acting for barrier in facts.barriers)}
    if every <= 1 or not line.line or (line.file, line.func) in ends:
        return None
    return "call", line.file, line.func, every


def _waits_for_data(facts: Facts) -> Iterator[Finding]:
    """Draws of batches that the compiled code waits for, at the line that makes them."""
    run = facts.run
    drawn: dict[Place, dict[int, PauseTally]] = {}
    for (stack, cause), waits in run.pauses.items():
        if cause == host.DATA and waits.count >= HABIT:
            loop = facts.place(stack)
            made = (facts.place(one.made) for one in run.batches if one.stack == stack and one.made)
            drawn.setdefault(drawing(facts, next(made, loop), {}), {})[stack] = waits
    running = facts.running_s * 1e9
    for place, loops in drawn.items():
        whole = merged(PauseTally, loops.values())
        total, count, longest = whole.total, whole.count, whole.most  # it may be the first, for which workers start
        if total - longest < max(LARGE * running, WORTH_SAYING * facts.wall_s * 1e9):
            continue
        places = list(map(facts.place, loops))
        keys = frozenset((stack, run.main_thread) for stack in loops)
        drawn_at = " and ".join(dict.fromkeys(map(short, places)))
        cost = total / 1e9
        yield facts.finding(
            "idle_gap",
            place,
            operation="data wait",
            count=count,
            counted=Matching(DataWait, ("stack", "tid"), keys),
            cost_s=cost,
            cause=(
                f"What is compiled waits while the next batch is drawn at {drawn_at}{_made_at(place, places[0])}: "
                f"{duration(cost)} in {plural(count, 'wait')}, {percent(total / running)} of the time that neither "
                "compiling nor imports took."
            ),
            advice=load_ahead(facts, True, total, count),
            evidence=(f"{duration(cost / count)} each, longest {duration(longest / 1e9)}",),
            also=places,
        )


def _collects(facts: Facts) -> Iterator[Finding]:
    """Collections that the program asks for again and again, between calls of what is compiled."""
    running = facts.running_s * 1e9
    for place, pauses in asked_for(facts).items():
        whole = merged(PauseTally, [one for _, one in pauses])
        if whole.total < max(FELT * running, WORTH_SAYING * facts.wall_s * 1e9, _WORTH_NS):
            continue
        cost = whole.total / 1e9
        yield facts.finding(
            "idle_gap",
            place,
            operation="garbage collection",
            count=whole.count,
            counted=Matching(Gc, ("stack",), frozenset((stack,) for stack, _ in pauses)),
            cost_s=cost,
            cause=(
                f"The program collects garbage between what is compiled: {duration(cost)} in "
                f"{plural(whole.count, 'collection')}, {percent(whole.total / running)} of the time that neither "
                "compiling nor imports took."
            ),
            advice=_SELDOMER,
            evidence=(f"{duration(cost / whole.count)} each, longest {duration(whole.most / 1e9)}",),
        )


def _is_recorded(activity: Activity) -> bool:
    """Whether an event names the activity: neither a sample nor a guess from the lines around it."""
    return isinstance(activity.main, int)


def _evidence(facts: Facts, activity: Activity) -> Iterator[str]:
    """The lines that took most of the time, where there are several, and the share of other programs."""
    whole = activity.lines.total()
    at: Counter[str] = Counter()
    for stack, ns in activity.lines.items():
        at[short(facts.place(stack))] += ns
    if len(at) > 1:
        yield "seen at " + ", ".join(f"{line} ({percent(ns / whole)})" for line, ns in at.most_common(3))
    waited = activity.seen[host.CPU]
    if waited >= PART * activity.total:
        yield f"for {percent(waited / activity.total)} of it other programs had the processors"


def _explain(facts: Facts, activity: Activity) -> _Told:
    """The clause on what the host does, the advice, the place, and the operation."""
    kind = activity.kind
    place = heaviest(facts.names, activity)
    if kind == host.SCOPE:
        return _explain_scope(facts, activity)
    if kind == host.GC:
        place = _longest_pause(facts, host.GC)
        advice = "Call gc.freeze() after the set-up, and gc.collect() only between epochs."
        if COLLECTS.search(place.code):
            advice = _SELDOMER
        return "collects garbage", advice, place, "garbage collection"
    if kind == host.DATA:
        loop = activity.line if activity.line.line else _longest_pause(facts, host.DATA)
        place = loop if not place.line or _is_recorded(activity) else place
        loader = any(cause == host.DATA for _, cause in facts.run.pauses)  # else the program's own generator
        advice = load_ahead(facts, loader, activity.total, activity.gaps)
        keeps_up = facts.loading_s < facts.uncompiling_s - activity.total / 1e9  # while the device works
        if loader and activity.rhythm.every > 1 and keeps_up:  # a wait at the begin of each pass
            advice = (
                "Let the loader go on from pass to pass (one iterator over all epochs, workers that stay), so that it "
                "loads while the last batches train."
            )
        elif started := workers_started(facts):
            advice, place = started
        elif loader and (maker := maker_of(facts)).line:
            place = drawing(facts, maker, activity.lines)
        return f"waits for its next batch{_made_at(place, loop)}", advice, place, "data wait"
    if kind == host.CHECKPOINT:
        advice = "Do so less often, or copy the state to the host and write it in a background thread."
        return "saves or loads a checkpoint", advice, place, "checkpoint"
    if kind in (host.GIL, host.WAIT) and (held := activity.held_at()):
        return _explain_thread(facts, activity, held)
    if kind == host.WAIT:
        return (
            f"waits at {cited(place)} for what is outside Python: a sleep, a file, the network, a lock",
            "Do this in a background thread that the loop does not wait for, or leave it out of the loop.",
            place,
            "",
        )
    # Where the idle sampler looked at most once into each gap, so always as far into it, the line that it saw is where
    # the thread had got to, not where the time went: the call is known, no more.
    seen = (tally.most for cause, tally in activity.causes.items() if isinstance(cause, Seen))
    unsure = not activity.option and max(seen, default=0) < GLANCE_NS
    loop = filling(facts, activity) if not unsure else NOWHERE
    if loop.line and not is_at_one_line(facts, activity, loop, place):
        place = loop
    elif not loop.line:
        loop = element_loop(facts, place)
    if place.line and activity.line.line and activity.line != place and unsure:
        place = activity.line
        inner = _looked_at(facts, place)
        most = f", most of it at {cited(inner)}" if inner.line else ""
        where_to = f"called at {cited(place)}{most}"
    elif place.line:
        within = "in the loop " * (place == loop)
        where_to = f"in {whose(place.acting)} {function(place)}" if place.library else f"{within}at {cited(place)}"
    else:
        before, after = facts.names.bracket(*activity.longest_hole())
        where_to, place = f"({span(before, after)})", culprit(before, after)
    advice = f"{_at_once(place, loop)} out of the loop or into {facts.words.background}, or do it on the device."
    if _TRACES.search(place.code) and "is_fn_pure" not in place.code:
        advice = (
            "Define the function that scan is given once, outside of what calls it, with all that changes in the carry "
            "or in xs, and pass is_fn_pure=True: else each call traces it anew."
        )
    return f"runs plain Python {where_to}", advice, place, ""


def _at_once(place: Place, loop: Place) -> str:
    """What to do about work of Python's, in a ``loop`` over elements where it has a line, up to the verb that moves it
    elsewhere."""
    if not loop.line:
        return "Move this work"
    over = f"the loop at {short(loop)}"
    if method := draws_one(place.acting.code):
        return (
            f"Draw the numbers that {over} needs in one call, in place of one after another (numpy's "
            f"generators take size=n: rng.{method}(..., size=n)); or move this work"
        )
    return f"Do it with operations on whole arrays in place of {over}, if that goes over elements; or move this work"


def _looked_at(facts: Facts, call: Place) -> Place:
    """The line of what ``call`` runs that looks at the main thread found most, whenever they came."""
    at: Counter[Place] = Counter()
    for (stack, _), ns in facts.run.looks.items():
        line = users(facts.place(stack))
        if line.at != call.at and any(frame.at == call.at for frame in facts.names.frames(stack)):
            at[line] += ns
    place, ns = next(iter(at.most_common(1)), (NOWHERE, 0))
    return place if at.total() >= LOOKED_NS and ns >= _SEEN * at.total() else NOWHERE


def _explain_thread(facts: Facts, activity: Activity, held: dict[int, int]) -> _Told:
    """Another thread runs Python: the host waits for what it makes, and for the interpreter's lock."""
    waits = {cause.stack: t.total for cause, t in activity.causes.items() if _is_seen(cause, host.WAIT)}
    lock = sum(t.total for cause, t in activity.causes.items() if _is_seen(cause, host.GIL))
    holder, where = facts.run.holders.get(max(held, key=held.__getitem__), ""), innermost(facts.names, held)
    at = f" at {cited(where)}" if where.line else ""
    if holder == READER and not where.line:  # only libraries were seen: it makes what the loop draws
        where = _longest_pause(facts, host.DATA)
        at = f" while it makes the batches of {cited(where)}" if where.line else ""
    if lock >= sum(waits.values()):
        what = f"waits for the interpreter's lock, which thread '{holder}' has{at}"
    else:
        place = facts.place(max(waits, key=waits.__getitem__))
        what = f"waits at {cited(place)} for thread '{holder}', which runs{at}"
        what += ", and for the interpreter's lock, which that has" if lock >= PART * activity.total else ""
    advice = "Do that thread's work in a process of its own, or with functions that release the lock while they work."
    return what, advice, where if where.line else heaviest(facts.names, activity), "interpreter lock"


def _is_seen(cause: Cause, kind: int) -> TypeGuard[Seen]:
    return isinstance(cause, Seen) and cause.cause == kind


def _made_at(place: Place, loop: Place) -> str:
    if not place.line or place.at == loop.at:
        return ""
    return f", which is made at {cited(place)}"


def _explain_scope(facts: Facts, activity: Activity) -> _Told:
    """The place is the line inside the scope that clearly takes its time, else the scope's own."""
    main = activity.main
    assert isinstance(main, int)
    name = facts.text(main - host.SCOPE)
    scope = facts.run.scopes.get(main - host.SCOPE)
    around = facts.names.frames(scope.stack) if scope is not None else ()
    place = heaviest(facts.names, activity, NEARLY_ALL)
    if around and (not place.line or place in around):
        place = around[0]
    if not place.line and activity.holes():
        place = culprit(*facts.names.bracket(*activity.longest_hole()))
    advice = f"Do what '{name}' does before the loop, in a background thread, or on the device."
    return f"is in scope '{name}'", advice, place, name


def _longest_pause(facts: Facts, cause: int) -> Place:
    pauses = {stack: one.total for (stack, kind), one in facts.run.pauses.items() if kind == cause}
    return facts.place(max(pauses, key=pauses.__getitem__, default=0))


class IdleGaps(msgspec.Struct, frozen=True):
    """The ``count`` gaps of the device with most time of ``causes``; in further gaps these took little.

    A second analysis of the recording finds them.
    """

    causes: frozenset[Cause]
    count: int

    def among(self, batches: Iterable[Sequence[AnyEvent]]) -> Iterator[Moment]:
        fold = Fold()
        every = fold.window.idle = _EveryGap(blamed=self.causes)
        for batch in batches:
            fold.feed_batch(batch)
        fold.window.settle(final=True)
        return iter(sorted(nlargest(self.count, every.gaps, key=attrgetter("dur"))))


class _EveryGap(IdleBlame):
    """Keeps every gap with one of ``blamed``, where the analysis keeps the longest gaps."""

    blamed: frozenset[Cause] = frozenset()
    gaps: list[Moment] = []  # noqa: RUF012 (msgspec copies it)

    def remember(self, begin: int, stop: int, parts: dict[Cause, int], segments: Sequence[Segment], step: int) -> None:
        if not self.blamed.isdisjoint(parts):
            self.gaps.append(Moment(begin, sum(ns for cause, ns in parts.items() if cause in self.blamed)))


KIND = Kind(find, blamed_for=("max_idle",))
