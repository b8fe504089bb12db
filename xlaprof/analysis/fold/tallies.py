"""What a run adds up, each tally of bounded size: reads, fallbacks, compiles, barriers, scopes, steps."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from xlaprof.analysis.timeline.rhythm import Rhythm
from xlaprof.events import Barrier, Change, Compile

from .distribution import Distribution
from .series import Series

RECENT = 120


class ReadTally:
    """Reads of one operation at one place. Nanoseconds."""

    _SUMS = (
        "bytes", "compiled", "count", "dur", "in_steps", "late", "looped", "serial", "stalled", "steps", "told",
        "told_dur", "wait",
    )  # fmt: skip
    __slots__ = (*_SUMS, "last_step", "most", "rhythm")

    def __init__(self) -> None:
        self.count = 0
        self.dur = 0
        self.wait = 0
        self.compiled = 0  # ns of dur: compiling the graph that computes the value
        self.late = 0  # reads of values that the device need not hurry for: it had been given more to do since
        self.stalled = 0  # reads that the host had to wait for; like ``late`` not of those known only from digests
        self.most = 0
        self.bytes = 0
        self.in_steps = 0  # inside a StepTrace
        self.looped = 0  # between two barriers
        self.steps = 0  # steps with at least one
        self.serial = 0  # ns the device then idled for want of work, at most as long as the host had waited for it
        self.told = 0  # of count: known only from digests
        self.told_dur = 0
        self.last_step = (-1, -1)  # name and number of the last step counted in ``steps``
        self.rhythm = Rhythm()

    def merge(self, other: ReadTally) -> None:
        for name in self._SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.most = max(self.most, other.most)
        self.rhythm.merge(other.rhythm)

    @property
    def known(self) -> int:
        """Reads that were told one by one."""
        return self.count - self.told


class FallbackTally:
    """Runs of one operation on the CPU, at one place, with the transfers they caused. Nanoseconds."""

    _SUMS = ("bytes", "compiled", "count", "down", "dur", "in_steps", "reads", "up", "up_bytes", "wait")
    __slots__ = (*_SUMS, "most", "rhythm")

    def __init__(self) -> None:
        self.count = 0
        self.dur = 0
        self.most = 0
        self.in_steps = 0
        self.reads = 0
        self.bytes = 0
        self.compiled = 0  # ns of dur: compiling the graph that computes the inputs
        self.wait = 0  # waiting for the device to compute them
        self.down = 0  # copying them to the host
        self.up = 0  # copying the results to the device
        self.up_bytes = 0
        self.rhythm = Rhythm()

    def merge(self, other: FallbackTally) -> None:
        for name in self._SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.most = max(self.most, other.most)
        self.rhythm.merge(other.rhythm)


class CompileRecord(NamedTuple):
    """A compile and what was known when it happened."""

    t: int
    dur: int
    program: int
    ops: int
    stack: int
    trigger: str
    change: Change | None
    nth: int  # compiles at this barrier before it
    visits: int  # times this barrier had been reached before
    step: int  # number of the step it happened in; -1 before the first
    before: tuple[int, ...]  # programs compiled at this barrier before (the last few)
    inputs: int = 0
    outputs: int = 0
    lower: int = 0  # ns of dur: our lowering
    backend: int = 0  # ns of dur: XLA's compilation, or loading what it compiled before
    cached: bool = False  # from the persistent compilation cache
    loops: int = 0  # most times one line recorded the same operation in the graph
    again: int = -1  # of a read: operations that the next barrier runs once more; -1: not known


class CompileBill:
    """What all compiles took. Nanoseconds; exact however many they are, and of all recordings that were merged."""

    __slots__ = ("backend", "cached", "count", "lower", "spared", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.lower = 0  # our lowering
        self.backend = 0  # XLA's part, or loading what it made before
        self.cached = 0  # of count: loaded from the persistent cache
        self.spared = 0  # of backend: what that cache would spare a second run

    def add(self, event: Compile) -> None:
        self.count += 1
        self.total += event.dur
        self.lower += event.lower
        self.backend += event.backend
        if event.cached:
            self.cached += 1
        else:
            self.spared += event.backend

    def merge(self, other: CompileBill) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Reading(NamedTuple):
    """What was alive on the device at a moment."""

    step: int  # steps ended by then
    tensors: int
    bytes: int


class Site:
    """A barrier of the program: one stack from which ``sync()`` is called."""

    __slots__ = (
        "compiles",
        "dispatch",
        "end",
        "executed",
        "grew",
        "grown_from",
        "in_steps",
        "last_ops",
        "longest_growth",
        "loop",
        "loop_ops",
        "loop_shared",
        "loops",
        "ops",
        "programs",
        "start",
        "trigger",
        "visits",
    )

    def __init__(self) -> None:
        self.trigger = "sync"
        self.visits = 0
        self.executed = 0  # visits that ran something
        self.in_steps = 0  # of executed: inside a StepTrace
        self.compiles = 0
        self.programs: tuple[int, ...] = ()
        self.dispatch = Distribution()  # ns the host spent in it
        self.ops = 0  # sum over executed visits
        self.last_ops = 0
        self.grew = 0  # visits in a row with more operations than the one before
        self.grown_from = 0
        self.longest_growth = (0, 0, 0)  # visits, operations first, operations last
        self.loops = 0  # most often that one line repeated an operation in one graph, and
        self.loop = 0  # the stack of that line
        self.loop_ops = 0
        self.loop_shared = False
        self.start = 0  # begin of the stretch that its last visit ended
        self.end = 0

    def visit(self, ops: int) -> None:
        self.executed += 1
        self.ops += ops
        if self.grew or ops != self.last_ops:
            self.grow(ops)

    def repeat(self, event: Barrier | Compile) -> None:
        """The graph that ends here repeats a line."""
        if event.loops > self.loops:
            self.loops, self.loop = event.loops, event.loop
            self.loop_ops, self.loop_shared = event.loop_ops, event.loop_shared

    def grow(self, ops: int) -> None:
        """A graph of so many operations ended here."""
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
        self.programs = (self.programs + other.programs)[-8:]
        self.dispatch.merge(other.dispatch)
        self.ops += other.ops
        self.longest_growth = max(self.longest_growth, other.longest_growth)
        if other.loops > self.loops:
            self.loops, self.loop = other.loops, other.loop
            self.loop_ops, self.loop_shared = other.loop_ops, other.loop_shared


class ScopeTally:
    """A named scope. Nanoseconds."""

    __slots__ = ("errors", "own", "stack", "tell", "told", "total")

    def __init__(self) -> None:
        self.total = Distribution()
        self.tell = self.total.tell  # bound once: scopes are what a log has most of
        self.own = 0  # without the scopes inside it, of those not told by digests
        self.told = 0  # ns of total known only from digests
        self.errors = 0
        self.stack = 0  # of the line that entered it first

    def merge(self, other: ScopeTally) -> None:
        self.total.merge(other.total)
        self.own += other.own
        self.told += other.told
        self.errors += other.errors

    def self_ns(self) -> int:
        """``own``, with the digests' part in the proportion of the others."""
        known = self.total.total - self.told
        return self.own + (self.told * self.own // known if known else self.told)


class StepTally:
    """The steps of one name. Nanoseconds."""

    __slots__ = ("count", "firsts", "last_num", "recent", "rest", "series", "unbarred", "worst_unbarred")

    def __init__(self) -> None:
        self.count = 0
        self.firsts: list[int] = []  # the first step; one of each recording that was merged
        self.rest = Distribution()
        self.recent: deque[int] = deque(maxlen=RECENT)
        self.series: Series[int] = Series()  # in order of time, without the first
        self.last_num = -1
        self.unbarred = 0  # steps since something cut the graph
        self.worst_unbarred = 0

    @property
    def first(self) -> int:
        """Of several ranks the slowest first step: the one that is felt."""
        return max(self.firsts, default=0)

    def add(self, num: int, dur: int) -> None:
        self.count += 1
        if self.firsts:
            try:
                self.rest.tell(dur)
            except OverflowError:
                self.rest.add(dur)
            self.series.add(dur)
        else:
            self.firsts.append(dur)
        self.recent.append(dur)
        self.last_num = num

    def add_all(self, nums: Sequence[int], durs: Sequence[int], cut: Sequence[bool]) -> None:
        """Add steps that are not the first; ``cut``: in which of them something cut the graph."""
        self.count += len(nums)
        self.rest.tell_all(array("q", durs).tobytes())
        self.series.add_all(durs)
        self.recent.extend(durs)
        self.last_num = nums[-1]
        if all(cut):
            self.unbarred = 0
        else:
            for one in cut:
                self.pass_by(one)

    def pass_by(self, cut: bool) -> None:
        """A step ended; whether something cut the graph in it."""
        self.unbarred = 0 if cut else self.unbarred + 1
        self.worst_unbarred = max(self.worst_unbarred, self.unbarred)

    def merge(self, other: StepTally) -> None:
        self.count += other.count
        self.firsts += other.firsts
        self.rest.merge(other.rest)
        self.series.merge(other.series)
        self.recent.extend(other.recent)
        self.last_num = max(self.last_num, other.last_num)
        self.worst_unbarred = max(self.worst_unbarred, other.worst_unbarred)
