"""upload: the loop brings to the device what is there already, or waits for its next batch to be brought.

Whether data came again was decided where it was recorded. Cost: the host's time in these uploads. New data has a reason
to come: such uploads are a finding where the run would be much shorter without them, for a thread can bring them ahead.
Uploads within a CPU fallback belong to that.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from xlaprof.analysis.evidence.counted import Matching
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.fold.tallies import UploadTally
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import DEAR, FELT, HABIT, MANY, MOST, NEARLY_ALL, NOTICED, TRIFLE
from xlaprof.analysis.timeline import host
from xlaprof.analysis.timeline.idle import LONG
from xlaprof.analysis.timeline.rhythm import in_all
from xlaprof.analysis.whatif import replay
from xlaprof.events import TransferToDevice
from xlaprof.text.quantities import duration, percent, size_text, times
from xlaprof.vocabulary import fill

# bytes of one number
_NUMBER = 8
_LARGE = 1 << 16  # bytes: two smaller arrays may well have one type


class _Line(msgspec.Struct):
    """What one line brings to the device: the same again, or new."""

    place: Place
    again: bool
    stacks: list[int] = msgspec.field(default_factory=list)
    tally: UploadTally = msgspec.field(default_factory=UploadTally)

    @property
    def cost_s(self) -> float:
        return self.tally.dur / 1e9

    def data(self, facts: Facts) -> tuple[str, str]:
        """What comes again here, most of it: the argument's name, and its type; "": not known."""
        what = facts.text(next(filter(None, map(facts.run.largest_again, self.stacks)), 0))
        name, _, kind = what.rpartition(" ")
        return name, kind


class _Told(msgspec.Struct):
    """A line that is a finding, and others that bring the same array."""

    line: _Line
    cut: replay.Cut | None
    gain: float
    others: list[_Line] = msgspec.field(default_factory=list)


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each array that lines bring again, or each line whose new data is waited for."""
    told: list[_Told] = []
    for one in sorted(_candidates(facts), key=lambda one: -one.line.cost_s):
        same = next((other for other in told if _is_one(facts, other.line, one.line)), None)
        if same is None:
            told.append(one)
        else:
            same.others.append(one.line)
            same.gain += one.gain
    yield from (_finding(facts, one) for one in told)


def _is_one(facts: Facts, line: _Line, other: _Line) -> bool:
    """Whether both lines bring one large array again, in one loop: it has one type, and no other name."""
    large = min(one.tally.bytes / max(1, one.tally.count) for one in (line, other)) >= _LARGE
    if not (line.again and other.again and large):
        return False
    (name, kind), (named, another) = line.data(facts), other.data(facts)
    if not kind or kind != another:
        return False
    loops = [
        {(frame.file, frame.func, frame.loop) for stack in one.stacks for frame in facts.names.frames(stack)}
        for one in (line, other)
    ]
    return (not name or not named or name == named) and any(loop for *_, loop in loops[0] & loops[1])


def _candidates(facts: Facts) -> Iterator[_Told]:
    lines = _lines(facts)
    for (at, again), line in lines.items():
        other = lines.get((at, not again))
        varies = other is not None and other.tally.rhythm.steps > 1
        if again and varies and line.tally.bytes <= _NUMBER * line.tally.count:
            continue  # a number: of its few values some come again by chance
        whole = line.cost_s + (other.cost_s if other is not None else 0.0)
        if not line.tally.dur or line.tally.count < HABIT or (facts.step_count and line.tally.rhythm.steps < HABIT):
            continue
        cut = replay.uploads(line.stacks)
        gain = facts.what_if.gain_s(cut) * line.cost_s / whole
        alone = line.cost_s >= NEARLY_ALL * whole
        if facts.run.jit.functions:  # the call returns, and its program waits
            gain, alone = min(line.cost_s, max(gain, _idle_s(facts, line))), False
        if (again and _is_felt(facts, line)) or (
            not again and _waits(facts, line, gain) and (other is None or not _is_felt(facts, other))
        ):
            yield _Told(line, cut if alone else None, gain)


def _lines(facts: Facts) -> dict[tuple[tuple[str, int], bool], _Line]:
    fallbacks = {stack for stack, _ in facts.run.fallbacks}
    found: dict[tuple[tuple[str, int], bool], _Line] = {}
    for (stack, again), tally in facts.run.sent.items():
        place = facts.place(stack)
        if place.line and stack not in fallbacks:
            line = found.setdefault((place.at, again), _Line(place, again))
            line.stacks.append(stack)
            line.tally.add(tally.count, tally.dur, tally.bytes)
            line.tally.rhythm.join(tally.rhythm)
    return found


def _is_felt(facts: Facts, line: _Line) -> bool:
    """Whether it takes a part of the usual step that can be measured, or of all time that was not compiling."""
    tally, cost_s = line.tally, line.cost_s
    usual = facts.steps[0].median_s if facts.steps and tally.rhythm.steps >= MOST * facts.step_count else 0.0
    of_a_step = usual > 0 and cost_s >= NOTICED * usual * _in_steps(facts, tally)
    whole = facts.idle.window_s or facts.wall_s
    return cost_s >= TRIFLE * whole and (of_a_step or cost_s >= NOTICED * facts.working_s)


def _idle_s(facts: Facts, line: _Line) -> float:
    """The idle time of the device blamed on uploads, as far as it is this line's."""
    blamed = facts.run.window.idle.causes.get(host.UPLOAD)
    whole = sum(tally.dur for tally in facts.run.sent.values())
    return blamed.total / 1e9 * min(1.0, line.tally.dur / whole) if blamed is not None else 0.0


def _in_steps(facts: Facts, tally: UploadTally) -> int:
    """The steps with such uploads. One that goes on after its step is told with that or with the next, and none is
    missing where there are as many as steps."""
    steps, of = tally.rhythm.steps, facts.outer_steps
    return max(steps, min(tally.count, of)) if steps >= MOST * of else steps


def _waits(facts: Facts, line: _Line, gain: float) -> bool:
    """Whether each step waits for its upload, so long that it is worth a thread."""
    steps = _in_steps(facts, line.tally)
    if steps < MANY or not in_all(steps, facts.full_steps or facts.outer_steps):
        return False
    if line.tally.dur < LONG * line.tally.count:  # so short a wait is no habit
        return False
    return gain >= max(DEAR * facts.working_s, FELT * facts.idle.window_s)


def _finding(facts: Facts, told: _Told) -> Finding:
    line, words = told.line, facts.words
    tally, every = line.tally, [line, *told.others]
    cost_s = sum(one.cost_s for one in every)
    rhythm = facts.often(tally.rhythm)
    if tally.count < 2 * facts.outer_steps and in_all(_in_steps(facts, tally), facts.outer_steps):
        rhythm = "every step"
    often = ", ".join(filter(None, (times(tally.count), rhythm)))
    took = f"{size_text(tally.bytes / tally.count)} each time, {duration(line.cost_s)} in all"
    if line.again:
        name, kind = line.data(facts)
        what = " ".join(filter(None, (name, kind)))
        also = "".join(
            f", and {times(one.tally.count)} at {short(one.place)}: {duration(one.cost_s)}" for one in told.others
        )
        cause = (
            f"The same data{f' ({what})' if what else ''} is brought to the device here {often}: {took}{also}. All "
            "of it had been brought before."
        )
        module = line.place.acting.func.rpartition(".")[2] == "forward" and words.as_buffer
        advice = f"{words.as_buffer if module else words.put_once}."
        remedy = fill(words.put_once_code, name=name) if name.isidentifier() else ""
    else:
        cause = (
            f"Each step waits here until its data is on the device ({often}): {took}, and the device has nothing to do "
            "meanwhile."
        )
        advice, remedy = f"Have the next batch brought while this one is computed: {words.send_ahead}.", ""
    events = frozenset((stack, line.again, facts.run.main_thread) for one in every for stack in one.stacks)
    return facts.finding(
        "upload",
        line.place,
        operation="the same data" if line.again else "new data",
        count=sum(one.tally.count for one in every),
        counted=Matching(TransferToDevice, ("stack", "again", "tid"), events, nonzero="calls", count="calls"),
        cost_s=cost_s,
        cut=None if told.others else told.cut,
        gain_s=min(cost_s, told.gain) if told.others else told.gain,
        cause=cause,
        advice=advice,
        remedy=remedy,
        evidence=(f"{percent(cost_s / max(facts.working_s, cost_s))} of the time that was not compiling",),
        in_steps=_in_steps(facts, tally),
        rhythm=rhythm,
        trifle=False,
        ended_by=("upload", line.place.at),
        also=[one.place for one in told.others],
    )


KIND = Kind(find, blamed_for=("max_idle",))
