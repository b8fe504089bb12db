"""The length of a run without a defect: host and device are replayed with the defect's time cut out.

The model has one lane for the host and one for each device. The host does one thing after the other and hands programs
over on its way. A device runs a program once it was handed over and the one before it has ended. The host waits where
it read a value that was not computed yet. A CPU device shares the host's processors: it is slower while the host is
busy. Replayed with nothing cut out, the model gives the recorded times to the nanosecond. With a :class:`Cut`, only
what waited for the removed time moves forward. So a read costs what host and device lost by waiting for each other, a
pause of the host that the device did not notice costs nothing, and two defects that hide each other gain more when both
are fixed.

A prediction from a sample of a long recording is scaled up: by the exact time in the tallies over that in the sample.
While a log grows, its reports are made from one sample until the log is twice as long (:class:`Sample`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from xlaprof.analysis.fold.tallies import CompileRecord
from xlaprof.analysis.fold.totals import Totals
from xlaprof.analysis.timeline import host
from xlaprof.analysis.timeline.idle import Cause
from xlaprof.analysis.timeline.schedule import Batch, Schedule

from .lanes import HOST, RUN, WAIT, Key, Share, lanes_of

_SHORT = 4_096  # events of a run that is always played as it is now
_GROWN = 2.0  # times as long as its sample a run is at most


class Cut(NamedTuple):
    """The time that a fix removes."""

    #: all time of a cause at a stack: reads, fallbacks
    places: frozenset[tuple[int, int]] = frozenset()
    #: (stack, share that remains) of the host's time in barriers
    barriers: frozenset[tuple[int, float]] = frozenset()
    #: all time of a cause, from the first execution on: a scope, Python between two stacks, garbage collection
    causes: frozenset[Cause] = frozenset()
    #: (begin, ns, share that remains) of compiles; recording their graphs goes with them
    compiles: frozenset[tuple[int, int, float]] = frozenset()
    #: stacks of reads whose executions served nothing else
    runs: frozenset[int] = frozenset()
    #: begins of compiles whose operations are recorded all the same, for another graph
    recorded: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return any(self[:])


NOTHING = Cut()


def reads(stacks: Iterable[int], alone: Iterable[int] = ()) -> Cut:
    """The host reads nothing at these stacks, so the graph is not cut there either.

    ``alone``: those of them whose executions served nothing else.
    """
    places = frozenset((cause, stack) for stack in stacks for cause in (host.TRANSFER, host.DISPATCH))
    return Cut(places, runs=frozenset(alone))


def uploads(stacks: Iterable[int]) -> Cut:
    """Nothing is brought to the device at these stacks."""
    return Cut(frozenset((host.UPLOAD, stack) for stack in stacks))


def fallbacks(stacks: Iterable[int]) -> Cut:
    """The operations at these stacks run on the device."""
    causes = (host.FALLBACK, host.TRANSFER, host.DISPATCH)
    return Cut(frozenset((cause, stack) for stack in stacks for cause in causes))


def barriers(stacks: Iterable[int], kept: float = 0.0) -> Cut:
    """No barrier at these stacks; the share ``kept`` of the host's time in them is spent elsewhere."""
    return Cut(barriers=frozenset((stack, kept) for stack in stacks))


def compiles(records: Iterable[CompileRecord], kept: float = 0.0, *, recorded: bool = False) -> Cut:
    """These graphs are not compiled, or are smaller: the share ``kept`` of their compile time remains.

    ``recorded``: another graph holds their operations, so the host records them all the same.
    """
    records = list(records)
    graphs = frozenset((record.t, record.dur, kept) for record in records)
    return Cut(compiles=graphs, recorded=frozenset(record.t for record in records) if recorded else frozenset())


def doing(causes: Iterable[Cause]) -> Cut:
    """The host does none of this, or does it on another thread."""
    return Cut(causes=frozenset(causes))


def together(cuts: Iterable[Cut]) -> Cut:
    """All of the cuts; of a compile or a barrier that several shorten, what none of them takes remains."""
    cuts = list(cuts)
    left: dict[tuple[int, int], float] = {}
    barriers: dict[int, float] = {}
    for cut in cuts:
        for moment, ns, share in cut.compiles:
            left[moment, ns] = max(0.0, left.get((moment, ns), 1.0) + share - 1)
        for stack, share in cut.barriers:
            barriers[stack] = max(0.0, barriers.get(stack, 1.0) + share - 1)
    whole = Cut(*(frozenset().union(*some) for some in zip(*cuts, strict=True))) if cuts else NOTHING
    compiles = frozenset((moment, ns, share) for (moment, ns), share in left.items())
    return whole._replace(barriers=frozenset(barriers.items()), compiles=compiles)


# -- replay


class PlayedStep(msgspec.Struct, frozen=True, gc=False):
    """A step: its name, whether it was the first of that name, ns as recorded, and ns as replayed."""

    name: int
    first: bool
    recorded: int
    now: float


class Played(NamedTuple):
    """A replayed schedule: begin, end and steps."""

    start: int
    end: float
    steps: list[PlayedStep]

    @property
    def span(self) -> float:
        return self.end - self.start


def play(schedule: Schedule, cut: Cut = NOTHING, pace: float = 1) -> Played:
    """Replay the kept batches of ``schedule`` without ``cut``. A step takes as long as the busier of host and device.

    ``pace``: the speed of a device while the host is busy; 1 where each has its own processors.
    """
    return Replay(cut, pace).played(schedule.batches)


class _Reached(NamedTuple):
    """How far a replay has come."""

    last: int  # end of the last batch, as recorded,
    now: float  # and as replayed
    busy: float  # ns of host work since ``done`` was brought up to date
    given: dict[int, float]  # device -> ns of work handed over
    done: dict[int, float]  # device -> ns of work done, without the last ``busy`` ns


class Replay:
    """A replay of a recording that grows: of batches that were there before, only the last is played again.

    That one may have been cut short where the recording ended then.
    """

    def __init__(self, cut: Cut, pace: float) -> None:
        self._cut, self._pace, self._kept = cut, pace, _kept(cut)
        self._known: list[Batch] = []  # those that were played,
        self._steps: list[PlayedStep] = []  # their steps,
        self._reached: _Reached | None = None  # and what came of them

    def played(self, batches: Sequence[tuple[int, Batch]]) -> Played:
        """The outcome for these batches, which come with their numbers."""
        if not batches:
            return Played(0, 0, [])
        every = [batch for _, batch in batches]
        start, known = every[0].start, len(self._known)
        reached = self._reached
        if reached is None or any(map(operator.is_not, self._known, every)) or known >= len(every):
            reached, known = _Reached(start, start, 0, {}, {}), 0
            self._steps.clear()
        self._reached = self._on(reached, every[known:-1], self._steps)
        self._known = every[:-1]
        steps = [*self._steps]
        _, now, busy, given, done = self._on(self._reached, every[-1:], steps)
        left = [goal - min(done[device] + busy * self._pace, goal) for device, goal in given.items()]
        return Played(start, now + max([0, *left]), steps)

    def _on(self, reached: _Reached, batches: Sequence[Batch], steps: list[PlayedStep]) -> _Reached:
        """Play these, too."""
        last, now, busy, given, done = reached
        given, done, cut, kept, pace = given.copy(), done.copy(), self._cut, self._kept, self._pace

        def catch_up(ns: float) -> None:
            for device, goal in given.items():
                done[device] = min(done[device] + ns, goal)

        for batch in batches:
            lanes = lanes_of(batch)
            gap = batch.start - last  # time between two kept batches passes unchanged
            now += gap
            last = batch.end
            shares = [_remains(key, cut, kept, lanes.known) for key in lanes.keys]
            overlaps = iter(lanes.overlaps)
            ends: list[tuple[int, float]] = []  # of each execution: its device, and the device's work done at its end
            marks: list[tuple[float, float]] = []
            work: float = 0
            ns: float
            for kind, a, b, c in lanes.items:
                if kind == HOST:
                    share = shares[b]
                    ns = a if share == 1 else round(a * share)
                    now += ns
                    busy += ns
                elif kind == RUN:
                    catch_up(busy * pace)
                    busy = 0
                    overlap = next(overlaps)
                    ns = 0 if c and c in cut.runs else a - overlap * (1 - pace)
                    done.setdefault(b, 0)
                    given[b] = given.get(b, 0) + ns
                    ends.append((b, given[b]))
                    work += ns
                elif kind == WAIT:
                    catch_up(busy * pace)
                    busy = 0
                    device, goal = ends[a]
                    ns = goal - done[device] + c
                    if shares[b] and goal > done[device] and ns > 0:
                        now += ns
                        catch_up(ns)
                else:
                    marks.append((now, work))
            for step, (first, second) in zip(batch.steps, lanes.marks, strict=True):
                recorded = step.end - step.start
                (began, before), (ended, after) = marks[first], marks[second]
                took = min(recorded, max(ended - began, after - before))
                steps.append(PlayedStep(step.name, step.first, recorded, took))
        return _Reached(last, now, busy, given, done)


def _kept(cut: Cut) -> dict[object, float]:
    """The shares that remain, by the begin of a compile, and by cause and stack."""
    shares: dict[object, float] = {(host.DISPATCH, stack): share for stack, share in cut.barriers}
    return shares | {moment: share for moment, _, share in cut.compiles} | dict.fromkeys(cut.places, 0.0)


def _remains(key: Key, cut: Cut, kept: Mapping[object, float], recorded: Mapping[int, Share]) -> float:
    """The share of a stretch of host time that is still spent."""
    if (place := (key.cause, key.stack)) in kept:
        return kept[place]
    if key.cause in cut.causes and not key.early and not key.compile:
        return 0.0
    if key.compile not in kept or (key.cause == host.TRACING and key.compile in cut.recorded):
        return 1.0
    share = kept[key.compile]
    if key.cause == host.TRACING:  # the operations are still recorded, on a known path
        of = recorded[key.compile]
        share += (1 - share) * min(1.0, of.known + (of.first if share else 0.0))
    return share


# -- predictions


class Sample:
    """Batches of a run at one moment, and what was played of them. While a log grows, later reports use it again.

    ``earlier``: of the same run, which has grown since; this one goes on from what was played then, and takes it over.
    """

    def __init__(self, run: Totals, earlier: Sample | None = None) -> None:
        self.events = run.events
        #: the schedule of each recording as it was then, and its replay with nothing cut out
        self.parts: list[tuple[Schedule, Played]] = []
        self._pace = _pace(run)
        self._replays: dict[Cut, list[Replay]] = {}  # of each part,
        #: and those that were made before, as far as they were not needed again yet
        self._earlier = earlier.taken_over(self._pace) if earlier is not None else {}
        held = [replace(part, batches=[*part.batches]) for part in run.window.schedule.parts()]
        held.sort(key=lambda part: part.batches[0][1].start)
        self.parts.extend(zip(held, self._play(held, NOTHING), strict=True))
        self._compiles = {one.start for _, batch in self.batches() for one in batch.compiles}
        self._played: dict[Cut, list[Played]] = {}

    def _play(self, parts: Sequence[Schedule], cut: Cut) -> list[Played]:
        replays = self._earlier.pop(cut, ())
        if len(replays) != len(parts):
            replays = [Replay(cut, self._pace) for _ in parts]
        self._replays[cut] = replays = list(replays)
        return [replay.played(part.batches) for replay, part in zip(replays, parts, strict=True)]

    def taken_over(self, pace: float) -> dict[Cut, list[Replay]]:
        """What was played at this pace, for a later sample: this one is not to be asked any more."""
        return self._replays if pace == self._pace else {}

    def batches(self) -> Iterator[tuple[int, Batch]]:
        """All of them, with their numbers."""
        for part, _ in self.parts:
            yield from part.batches

    def serves(self, run: Totals) -> bool:
        """Whether predictions for ``run``, which has grown since, can be made from it: it has nearly all of the run.

        A short run is played again: that takes no time.
        """
        return _SHORT <= self.events <= run.events <= _GROWN * self.events

    def without(self, cut: Cut) -> list[Played]:
        """The replay of each part without ``cut``. Compiles that came later are in none of its batches."""
        here = cut._replace(
            compiles=frozenset(one for one in cut.compiles if one[0] in self._compiles),
            recorded=cut.recorded & self._compiles,
        )
        if here not in self._played:
            parts = [part for part, _ in self.parts]
            self._played[here] = self._play(parts, here) if here else [whole for _, whole in self.parts]
        return self._played[here]


class WhatIf:
    """Predictions for one run, which must be settled.

    ``sample``: of an earlier moment of the same run, if it still serves; else its own. From an earlier one a gain is
    scaled up by the exact times of now, as that of a long recording is.
    """

    def __init__(self, run: Totals, sample: Sample | None = None) -> None:
        self.run = run
        self.wall = max(0, run.last - (run.begin or 0))
        self._earlier = sample
        self._sample = sample if sample is not None and sample.serves(run) else None
        #: whether predictions are made from the sample of an earlier moment
        self.is_provisional = self._sample is not None

    @property
    def sample(self) -> Sample:
        """What is played."""
        if self._sample is None:
            self._sample, self._earlier = Sample(self.run, self._earlier), None
        return self._sample

    @property
    def kept(self) -> Sample | None:
        """The sample for a later moment of the run: none is made where no prediction needed it."""
        return self._sample or self._earlier

    def gain_s(self, cut: Cut) -> float:
        """Seconds by which the run would have been shorter without ``cut``."""
        self._renew((cut,))
        return min(self._gained(cut) * self._scale(cut), self.wall) / 1e9

    def gain_of_all_s(self, cuts: Iterable[Cut]) -> float:
        """Seconds by which the run would have been shorter without any of ``cuts``."""
        cuts = [cut for cut in cuts if cut]
        self._renew(cuts)
        each = [(self._gained(cut), self._scale(cut)) for cut in cuts]
        known = sum(ns for ns, _ in each)
        scale = sum(ns * scale for ns, scale in each) / known if known else 1.0
        most = max((ns * scale for ns, scale in each), default=0.0)
        return min(max(self._gained(together(cuts)) * scale, most), self.wall) / 1e9

    def steps(self, cut: Cut, name: int) -> list[PlayedStep]:
        """The steps of a name that were recorded in full, without the first of each recording."""
        steps = [step for played in self.sample.without(cut) for step in played.steps]
        return [step for step in steps if step.name == name and not step.first]

    def _gained(self, cut: Cut) -> float:
        """ns gained in the kept batches. Simultaneous recordings (ranks) are as fast as the slowest, others add up."""
        if not cut:
            return 0
        gained = most = 0.0
        until: float | None = None
        for (_, before), after in zip(self.sample.parts, self.sample.without(cut), strict=True):
            ns = max(0.0, before.span - after.span)
            if until is not None and before.start < until:
                most, until = max(most, ns), max(until, before.end)
            else:
                gained += most
                most, until = ns, before.end
        return gained + most

    def _scale(self, cut: Cut) -> float:
        """The time of ``cut`` in the whole run over that in the batches kept."""
        whole, held = self._times(cut)
        return whole / held if held else 0.0

    def _renew(self, cuts: Iterable[Cut]) -> None:
        """Have a sample of now, where what is cut came after the earlier one."""
        if self.is_provisional and any(whole and not held for whole, held in map(self._times, cuts)):
            self._sample, self.is_provisional = None, False

    def _times(self, cut: Cut) -> tuple[float, float]:
        """ns of ``cut`` in the whole run, and in the batches kept; alike where all are."""
        parts = list(self.run.window.schedule.parts())
        if not self.is_provisional and not any(part.digest_ns or part.seen > len(part.batches) for part in parts):
            return 1.0, 1.0
        kept = _kept(cut)
        places = {*cut.places, *((host.DISPATCH, stack) for stack, _ in cut.barriers)}
        spent: dict[tuple[Cause, int], float] = {}
        held = 0.0
        for _, batch in self.sample.batches():
            lanes = lanes_of(batch)
            for key, ns in lanes.spent().items():
                gone = 1 - _remains(key, cut, kept, lanes.known)
                held += ns * gone
                if gone and key.compile not in kept:
                    which = (key.cause, key.stack if (key.cause, key.stack) in places else -1)
                    spent[which] = spent.get(which, 0) + ns * gone
        whole = sum(ns * (1 - share) for _, ns, share in cut.compiles)
        span = sum(part.span for part in parts)
        sampled = span / max(1, sum(batch.end - batch.start for _, batch in self.sample.batches()))
        in_full = span / max(1, span - sum(part.digest_ns for part in parts))
        for cause, stack in {*places, *((cause, -1) for cause in cut.causes)}:
            exact = _exact(self.run, cause, stack)
            if exact is None:  # digests hold no time of barriers
                each = sampled * (in_full if cause == host.DISPATCH else 1.0)
                exact = round(spent.get((cause, stack), 0) * each)
            whole += exact
        return whole, held


def _pace(run: Totals) -> float:
    """The speed of the device while the host is busy: a CPU device computes on the host's processors."""
    device = run.device
    if device is None or device.platform != "cpu" or device.cores <= 0:
        return 1
    return (device.cores - 1) / device.cores


def _exact(run: Totals, cause: Cause, stack: int) -> int | None:
    """ns of host time in the whole run, where a tally knows it."""
    if cause == host.TRANSFER:
        return sum(tally.dur for (place, _), tally in run.reads.items() if place == stack)
    if cause == host.UPLOAD:
        return sum(tally.dur for (place, _), tally in run.sent.items() if place == stack)
    if cause == host.FALLBACK:
        return sum(tally.dur for (place, _), tally in run.fallbacks.items() if place == stack)
    if not isinstance(cause, tuple) and cause >= host.SCOPE:
        scope = run.scopes.get(cause - host.SCOPE)
        return scope.self_ns() if scope else None
    return None
