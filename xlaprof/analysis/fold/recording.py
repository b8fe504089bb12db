"""The state of a recording: its header, devices and clock. The base class of its totals."""

from __future__ import annotations

from typing import NamedTuple

from xlaprof.analysis.model import Place
from xlaprof.analysis.names import Names
from xlaprof.analysis.timeline.device import DeviceTimeline
from xlaprof.analysis.timeline.window import Window
from xlaprof.events import Compiling, Counters, Device, Difference, Dropped, End, Header, Source
from xlaprof.vocabulary import STANDARD, Vocabulary


class Span(NamedTuple):
    """The length of one recording. Nanoseconds."""

    ns: int
    devices: int  # that ran something
    before: int  # until the first of them began, on average


class Begun(NamedTuple):
    """A compilation that lasts."""

    t: int  # since when
    place: Place
    graph: int  # the number that its program will have; 0: not known
    first: Difference | None  # in what its graph first differs from an earlier one
    phase: str  # the one that lasts; empty: not known
    func: int  # Text id: name of the function; 0: not known
    tid: int
    compiler: str  # "dynamo", "jit" or "runtime"

    @classmethod
    def of(cls, event: Compiling, names: Names, program: int) -> Begun:
        """``program``: the last one that was compiled. Programs of other compilers have numbers of their own."""
        compiler = event.trigger if event.trigger in ("dynamo", "jit") else "runtime"
        number = program + 1 if compiler == "runtime" else 0
        begun, place = max(0, event.t - event.spent), names.place(event.stack)
        return cls(begun, place, number, event.first, event.phase, event.func, event.tid, compiler)


class Recording:
    """A recording so far. Ids are the recording's own; lengths and moments are nanoseconds.

    Fields without an underscore decide how the next event is counted, one by one and in columns.
    """

    window_type: type[Window] = Window  # what settles the past, of some runs also for those who draw it

    def __init__(self) -> None:
        self.header: Header | None = None
        self.device: Device | None = None
        self.words: Vocabulary = STANDARD  # of the framework that was observed
        self.end: End | None = None
        self.events = 0
        self.dropped: dict[str, int] = {}
        self.counters: Counters | None = None
        self.since_step: int | None = None  # the first step that counts
        self.baseline: Counters | None = None  # counters before it
        self.following: Recording | None = None  # the recording after a second header
        self.merged_devices: list[DeviceTimeline] = []  # of the recordings merged into this one
        self.merged_spans: list[Span] = []  # of all recordings, once there are several
        self.settled_at = 0  # number of events at the last settling of a batch
        self.settled_every = 0  # events between the last two settlings
        self.names = Names()
        self.begin: int | None = None  # first moment of the recording
        self.last = 0  # last moment
        self.window = self.window_type()
        self.now = ("starting", 0)  # state, and since which moment
        self.compiling: Begun | None = None  # while a compilation lasts
        self.program = 0  # the last one that was compiled; they are numbered
        self.step_num = -1
        self.steps_ended = 0  # also the ordinal of the present step
        self.steps_ended_at = 0  # when the last step ended
        self.main_thread = 1  # the thread that runs the steps
        self.main_known = False  # a named step showed the main thread
        self.last_barrier = 0  # its end
        # bound once: most of a log comes here
        self._paint = self.window.host.unpainted.append
        self._add_wait = self.window.schedule.waits.append
        self._schedule_execution = self.window.schedule.executions.append

    @property
    def in_stride(self) -> bool:
        """Events are counted here, and which thread runs the steps is known."""
        return self.main_known and self.following is None

    def compilation_begins(self, event: Compiling) -> None:
        self.compiling = Begun.of(event, self.names, self.program)

    @property
    def lasting(self) -> Begun | None:
        """The compilation that goes on; one that failed has no end of its own, but its step has."""
        begun = self.compiling
        if begun is None or self.end is not None:
            return None
        return None if begun.tid == self.main_thread and begun.t < self.steps_ended_at else begun

    def devices(self) -> list[DeviceTimeline]:
        """The devices of this recording and of those merged into it."""
        return [*self.window.devices.values(), *self.merged_devices]

    def spans(self) -> list[Span]:
        """This recording, or all of those merged into it."""
        if self.merged_spans or self.begin is None:
            return self.merged_spans
        firsts = [device.begin() for device in self.window.devices.values()]
        before = sum(first - self.begin for first in firsts) // max(1, len(firsts))
        return [Span(self.last - self.begin, len(firsts), before)]

    def cover(self, start: int, end: int) -> None:
        """Extend the recording's span to these moments."""
        if self.begin is None or start < self.begin:
            self.begin = start
        if end > self.last:
            self.last = end

    def _on_device(self, event: Device) -> None:
        self.device = event

    def _on_source(self, event: Source) -> None:
        if event.words != STANDARD:
            self.words = event.words

    def _on_dropped(self, event: Dropped) -> None:
        self.dropped[event.why] = self.dropped.get(event.why, 0) + event.count

    def _on_end(self, event: End) -> None:
        self.end = event
        self.cover(event.t, event.t)
        self.now = ("finished", event.t)

    def _on_counters(self, event: Counters) -> None:
        self.counters = event
        self.cover(event.t, event.t)  # the program was there: of one that compiles for minutes nothing else tells it
