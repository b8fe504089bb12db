"""What a run adds up, each tally of bounded size: reads, fallbacks, compiles, barriers, scopes, steps."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence

import msgspec

from xlaprof.analysis.diagnosis import Part, along, parts
from xlaprof.analysis.sums import Tally
from xlaprof.analysis.timeline.rhythm import Rhythm
from xlaprof.events import Barrier, Change, Compile, GraphDiff

from .distribution import Distribution
from .series import Series

RECENT = 120
#: what ends a graph of what was pending at the entry of a compiled function, at the line that calls it
AT_ENTRY = "clear_pending"
_LAST = 8  # programs of a barrier
FEW = 16  # operations in one turn of a loop over tensors, at most: a training step has more


def times_run(program: int, calls: int) -> int:
    """How often a program ran in an execution, which stands for several where they are short. Stretches of work that
    nobody told apart are program 0, and ran once each."""
    return max(1, calls) if program else 1


class Timed(Tally):
    """A number of events and their total length. Nanoseconds."""

    count: int = 0
    ns: int = 0

    def add(self, count: int, ns: int) -> None:
        self.count += count
        self.ns += ns


class ReadTally(Tally):
    """Reads of one operation at one place. Nanoseconds."""

    count: int = 0
    dur: int = 0
    wait: int = 0
    compiled: int = 0  # ns of dur: compiling the graph that computes the value
    late: int = 0  # reads while the device had more work to do after the value
    stalled: int = 0  # reads that the host had to wait for; like ``late`` without those known only from digests
    most: int = 0
    bytes: int = 0
    in_steps: int = 0  # inside a StepTrace
    looped: int = 0  # between two barriers
    steps: int = 0  # steps with at least one
    serial: int = 0  # ns the device idled after the reads, of each at most the ns that the host had waited
    digest_count: int = 0  # of count: known only from digests
    digest_dur: int = 0
    last_step: tuple[int, int] = (-1, -1)  # name and number of the last step counted in ``steps``
    rhythm: Rhythm = msgspec.field(default_factory=Rhythm)

    def add(self, count: int, dur: int, most: int, wait: int, bytes: int, late: int, stalled: int) -> None:
        """Reads recorded one by one; negative to remove reads that turned out to belong to a fallback."""
        self.count += count
        self.dur += dur
        self.wait += wait
        self.bytes += bytes
        self.late += late
        self.stalled += stalled
        if most > self.most:
            self.most = most

    def add_digests(self, count: int, dur: int, most: int, steps: int) -> None:
        """Reads in ``steps`` steps, known only as sums."""
        self.add(count, dur, most, 0, 0, 0, 0)
        self.digest_count += count
        self.digest_dur += dur
        self.in_steps += count
        self.steps += steps

    def claim(self, count: int, steps: int, last: tuple[int, int]) -> None:
        """``count`` reads recorded one by one were in ``steps`` steps; ``last``: name and number of the last step."""
        self.in_steps += count
        self.steps += steps
        self.last_step = last

    @property
    def known(self) -> int:
        """Reads that were recorded one by one."""
        return self.count - self.digest_count


class UploadTally(Tally):
    """Uploads by the main thread at one place: of data that came again, or of new data. Nanoseconds."""

    count: int = 0
    dur: int = 0
    bytes: int = 0
    end_most: int = 0  # when the last of them ended
    rhythm: Rhythm = msgspec.field(default_factory=Rhythm)

    def beyond(self, start: int, end: int) -> int:
        """The ns of an upload in which none before it goes on: those that JAX's calls begin may be several at once."""
        before, self.end_most = self.end_most, max(self.end_most, end)
        return max(0, end - max(start, before))

    def add(self, count: int, dur: int, bytes: int) -> None:
        self.count += count
        self.dur += dur
        self.bytes += bytes


class FallbackTally(Tally):
    """Runs of one operation on the CPU, at one place, with the transfers they caused. Nanoseconds."""

    count: int = 0
    dur: int = 0
    most: int = 0
    in_steps: int = 0
    reads: int = 0
    bytes: int = 0
    compiled: int = 0  # ns of dur: compiling the graph that computes the inputs
    wait: int = 0  # waiting for the device to compute them
    down: int = 0  # copying them to the host
    up: int = 0  # copying the results to the device
    up_bytes: int = 0
    rhythm: Rhythm = msgspec.field(default_factory=Rhythm)

    def add(self, count: int, dur: int, most: int, step: int) -> None:
        """Fallbacks in the step with this ordinal."""
        self.count += count
        self.dur += dur
        self.most = max(self.most, most)
        self.rhythm.at(step, count)


class CompileRecord(Compile, frozen=True):
    """A compile without its difference, and the state of the recording when it happened."""

    nth: int = 0  # compiles at this barrier before it
    visits: int = 0  # times this barrier had been reached before
    step: int = -1  # number of the step it happened in; -1 before the first
    before: tuple[int, ...] = ()  # programs compiled at this barrier before (the last few)
    is_first: bool = False  # of its work: it was compared with none
    parts: tuple[Part, ...] = ()  # all that differs by itself from the graph before, what the others follow from first
    along: tuple[Change, ...] = ()  # what goes with a size that differs: numbers, and operations along its dimension

    @classmethod
    def of(cls, event: Compile, site: Site, step: int) -> CompileRecord:
        """``site``: the barrier as it was before; ``step``: the number of the step."""
        found, first = parts(event), event.diff == GraphDiff()
        own = {name: getattr(event, name) for name in Compile.__struct_fields__}
        own |= {"change": found[0].change if found else None, "diff": None, "turns": ()}
        return cls(
            **own,
            nth=site.at_entry if event.trigger == AT_ENTRY else site.compiles - site.at_entry,
            visits=site.visits,
            step=step,
            before=site.pending if event.trigger == AT_ENTRY else site.programs,
            is_first=first,
            parts=found,
            along=along(event),
        )


class PauseTally(Tally):
    """Waits for data, or collections of garbage, at one place. Nanoseconds."""

    count: int = 0
    total: int = 0
    most: int = 0


class CompileBill(Tally):
    """The cost of all compiles of all merged recordings, exact however many they are. Nanoseconds."""

    count: int = 0
    total: int = 0
    lower: int = 0  # our lowering
    backend: int = 0  # XLA's part, or loading from the cache
    cached: int = 0  # of count: loaded from a cache of programs
    loaded: int = 0  # making those cached once took so much more
    spared: int = 0  # a cache spares a second run so much, or would
    unkept: dict[str, int] = msgspec.field(default_factory=dict)  # why programs are compiled in every run -> how many

    def add(self, event: Compile) -> None:
        self.count += 1
        self.total += event.dur
        self.lower += event.lower
        self.backend += event.backend
        if event.cached:
            self.cached += 1
            self.loaded += event.spared
        else:
            self.spared += event.dur if event.kept else event.backend
        if event.unkept:
            self.unkept[event.unkept] = self.unkept.get(event.unkept, 0) + 1


class Site(msgspec.Struct):
    """A barrier of the program: one stack from which ``sync()`` is called."""

    trigger: str = "sync"
    visits: int = 0
    executed: int = 0  # visits that ran something
    in_steps: int = 0  # of executed: inside a StepTrace
    compiles: int = 0
    programs: tuple[int, ...] = ()  # compiled here, the last few; without those that
    pending: tuple[int, ...] = ()  # a compiled function's entry cut: the work of others, no version of the function's
    at_entry: int = 0  # of compiles: those
    dispatch: Distribution = msgspec.field(default_factory=Distribution)  # ns the host spent in it
    ops: int = 0  # sum over executed visits
    last_ops: int = 0
    grew: int = 0  # visits in a row with more operations than the one before
    grown_from: int = 0
    longest_growth: tuple[int, int, int] = (0, 0, 0)  # visits, operations first, operations last
    loops: int = 0  # most times that one line recorded the same operation in one graph
    loop: int = 0  # the stack of that line
    loop_ops: int = 0
    loop_shared: bool = False
    loop_trains: bool = False
    loop_learns: bool = False
    turns: Sequence[int] = ()  # of the loops around that line
    ends: int = 0  # of executed: those that may end a step
    piece: bool = False  # in a loop over tensors: a step reaches it several times
    start: int = 0  # begin of the stretch that its last visit ended
    end: int = 0

    def ran(self, ops: Sequence[int]) -> None:
        """Visits that ran graphs; ``ops``: the operations of each."""
        self.executed += len(ops)
        self.ops += sum(ops)
        last = self.last_ops
        for one in ops:
            if one != last or self.grew:
                self.grow(one)
                last = one

    def compiled(self, event: Compile) -> None:
        """A graph that ends here was compiled."""
        self.compiles += 1
        if event.trigger == AT_ENTRY:
            self.at_entry += 1
            self.pending = (*self.pending[1 - _LAST :], event.program)
        else:
            self.programs = (*self.programs[1 - _LAST :], event.program)

    def repeat(self, event: Barrier | Compile | Site) -> None:
        """Note the line that the graph ending here repeats."""
        if event.loops > self.loops:
            self.loops, self.loop = event.loops, event.loop
            self.loop_ops, self.loop_shared, self.turns = event.loop_ops, event.loop_shared, event.turns
            self.loop_trains, self.loop_learns = event.loop_trains, event.loop_learns

    def grow(self, ops: int) -> None:
        """A graph of ``ops`` operations ended here."""
        if ops > self.last_ops and self.last_ops:
            if not self.grew:
                self.grown_from = self.last_ops
            self.grew += 1
            if self.grew > self.longest_growth[0]:
                self.longest_growth = (self.grew, self.grown_from, ops)
        else:
            self.grew = 0
        self.last_ops = ops

    def merge(self, other: Site) -> None:
        self.trigger = other.trigger
        self.visits += other.visits
        self.executed += other.executed
        self.in_steps += other.in_steps
        self.compiles += other.compiles
        self.at_entry += other.at_entry
        self.programs = (*self.programs, *other.programs)[-_LAST:]
        self.pending = (*self.pending, *other.pending)[-_LAST:]
        self.dispatch.merge(other.dispatch)
        self.ops += other.ops
        self.longest_growth = max(self.longest_growth, other.longest_growth)
        self.repeat(other)


class ScopeTally(msgspec.Struct):
    """A named scope. Nanoseconds."""

    total: Distribution = msgspec.field(default_factory=Distribution)
    own: int = 0  # without the scopes inside it; of those recorded one by one
    digest_ns: int = 0  # of total: known only from digests
    errors: int = 0
    stack: int = 0  # the line that entered it first
    steps: int = 0  # in which it was entered and left,
    last_step: int = -1  # the last of them by its ordinal; after the last step that ended: the one that goes on

    def add_steps(self, ordinals: Sequence[int]) -> None:
        """It was in these steps, which ascend, each once."""
        if ordinals:
            self.steps += len(ordinals) - (ordinals[0] == self.last_step)
            self.last_step = ordinals[-1]

    def merge(self, other: ScopeTally) -> None:
        self.total.merge(other.total)
        self.own += other.own
        self.digest_ns += other.digest_ns
        self.errors += other.errors
        self.stack = self.stack or other.stack
        self.steps += other.steps

    def self_ns(self) -> int:
        """``own``, with the digests' part in the same proportion."""
        known = self.total.total - self.digest_ns
        return self.own + (self.digest_ns * self.own // known if known else self.digest_ns)


_ENDLESS = 1 << 53  # steps that no program takes


class StepTally(msgspec.Struct):
    """The steps of one name. Nanoseconds."""

    count: int = 0
    firsts: list[int] = msgspec.field(default_factory=list)  # the first step; one of each recording that was merged
    rest: Distribution = msgspec.field(default_factory=Distribution)
    recent: deque[int] = msgspec.field(default_factory=lambda: deque(maxlen=RECENT))
    series: Series[int] = msgspec.field(default_factory=Series)  # in order of time, without the first
    last_num: int = -1
    total: int = 0  # steps that the first one says there will be; 0: it says nothing
    unbarred: int = 0  # steps since something cut the graph
    worst_unbarred: int = 0

    @property
    def first(self) -> int:
        """The first step; the slowest of several ranks."""
        return max(self.firsts, default=0)

    def expect(self, total: object) -> None:
        """The first step says that there will be so many."""
        self.total = total if type(total) is int and 0 < total < _ENDLESS else 0

    def add(self, num: int, dur: int) -> None:
        self.count += 1
        if self.firsts:
            self.rest.append(dur)
            self.series.add(dur)
        else:
            self.firsts.append(dur)
        self.recent.append(dur)
        self.last_num = num

    def add_all(self, nums: Sequence[int], durs: Sequence[int]) -> None:
        """Add steps that are not the first."""
        self.count += len(nums)
        self.rest.append_words(array("q", durs).tobytes())
        self.series.add_all(durs)
        self.recent.extend(durs)
        self.last_num = nums[-1]

    def end(self, cut: Sequence[bool]) -> None:
        """Steps ended; whether something cut the graph in each."""
        if not any(cut):
            self.unbarred += len(cut)
            self.worst_unbarred = max(self.worst_unbarred, self.unbarred)
            return
        for one in cut:
            self.unbarred = 0 if one else self.unbarred + 1
            self.worst_unbarred = max(self.worst_unbarred, self.unbarred)

    def merge(self, other: StepTally) -> None:
        self.count += other.count
        self.firsts += other.firsts
        self.rest.merge(other.rest)
        self.series.merge(other.series)
        self.recent.extend(other.recent)
        self.last_num = max(self.last_num, other.last_num)
        self.total = max(self.total, other.total)
        self.worst_unbarred = max(self.worst_unbarred, other.worst_unbarred)
