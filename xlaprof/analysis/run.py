"""The fold at the heart of xlaprof: events in, one at a time, in bounded memory; a :class:`Report` out, at any moment.

    run = Run()
    for event in log.read("run.log"):
        run.feed(event)
    report = run.report("run.log")

The report of a finished log, the live view of a growing one and a gate in CI all use it, so they agree. Runs of
several ranks or segments add up: ``run.merge(other)`` or ``run + other``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from xlaprof.analysis.model import Place, Report
from xlaprof.events import (
    AnyEvent,
    Counters,
    Device,
    Dropped,
    End,
    Event,
    Header,
    Stack,
    Step,
    StepDigest,
    Text,
    Thread,
)

from .fold.distribution import economise
from .fold.totals import Totals
from .timeline.device import DeviceTimeline
from .timeline.window import has_numpy

_THREADS = 4_096  # whose names are kept
_RELIEVED_EVERY = 65_536  # events
_FEW, _MANY = 512, 16_384  # events at a time, and in
_LONG = 32_768  # recordings of so many: importing numpy takes as long as these did
_HELD = 10_000  # events held back that may belong to the first step wanted


class Run(Totals):
    """A recording, analysed as it is read.

    ``since_step``: leave out everything before the first step with this number or a higher one (warm-up).
    ``long``: many events are to come, for which it is worth being ready at once.
    Events may come in any order that a log has; unknown ones and a missing header are tolerated.
    """

    def __init__(self, since_step: int | None = None, *, long: bool = False) -> None:
        super().__init__()
        self.long = long
        self.settled_at = 0  # after how many events a batch was settled last, and
        self.pace = 0  # from one time to the next
        self.since_step = since_step
        self.header: Header | None = None
        self.device: Device | None = None
        self.end: End | None = None
        self.threads: dict[int, str] = {}
        self.events = 0
        self.dropped: dict[str, int] = {}
        self.baseline: Counters | None = None  # counters before ``since_step``
        self.merged_counts: dict[str, int] = {}  # of the runs merged into this one
        self.merged_seconds: dict[str, float] = {}
        self.merged_devices: list[DeviceTimeline] = []
        self._next: Run | None = None  # the recording after a second header
        self._held: deque[Event] = deque(maxlen=_HELD)
        self._timed = self.handlers()
        self._handlers: dict[type, Callable[[Any], None]] = {
            Text: self.names.on_text,
            Stack: self.names.on_stack,
            Header: self._on_header,
            Device: self._on_device,
            Thread: self._on_thread,
            Dropped: self._on_dropped,
            End: self._on_end,
        }
        self._handlers |= self._timed if since_step is None else dict.fromkeys(self._timed, self._hold)

    # -- feeding

    def feed(self, event: AnyEvent | Event) -> None:
        """Take one event into account."""
        self.events += 1
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)
        if not self.events % _RELIEVED_EVERY:
            self._relieve()

    def feed_all(self, events: Iterable[AnyEvent | Event]) -> Run:
        """Take many events into account; returns itself."""
        remaining = iter(events)
        left = _RELIEVED_EVERY - self.events % _RELIEVED_EVERY
        while batch := list(islice(remaining, min(self._next_batch(), left))):
            if len(batch) > _FEW and has_numpy():
                from .fold.columns.fold import take

                take(self, batch)
            else:
                self.feed_singly(batch)
            left -= len(batch)
            if not left:
                self._relieve()
                left = _RELIEVED_EVERY
        return self

    def _next_batch(self) -> int:
        """How many events to take at once: in columns a little more than it takes until all of them are settled."""
        if not self.long and self.events < _LONG:
            return _FEW
        due = self.settled_at + self.pace - self.events
        if due < _FEW:
            due += self.pace
        return min(due + _FEW // 2, _MANY) if due > _FEW else _MANY

    def feed_singly(self, batch: Sequence[AnyEvent | Event]) -> None:
        """Take a batch into account, one by one."""
        # looked up one by one, in order: an event may change who handles the next
        for handler, event in zip(map(self._handlers.get, map(type, batch)), batch, strict=True):
            if handler is not None:
                handler(event)
        self.events += len(batch)

    def resume(self, moment: int) -> Run:
        """Begin in the middle of a recording, at the end of a barrier; returns itself."""
        self.begin = None
        self._seen(moment, moment)
        self._last_barrier = moment
        return self

    def _relieve(self) -> None:
        self.window.relieve()
        economise(self.distributions())

    # -- asking

    def report(self, path: str = "", notes: Iterable[str] = (), top: int | None = None) -> Report:
        """Everything there is to say so far; feeding may go on afterwards. ``top``: at most so many findings."""
        from xlaprof.analysis.summary import summarize

        return summarize(self.settled(), path, tuple(notes), top)

    def resolve(self, stack_id: int) -> Place:
        """The line behind a stack id of the recording."""
        return self.names.place(stack_id)

    @property
    def in_stride(self) -> bool:
        """The recording is this one's, and what is told in it is counted: its steps are named, and begun."""
        return self._named and self._handlers.get(Step) == self._timed[Step]

    @property
    def waiting(self) -> bool:
        """``since_step`` has not come yet."""
        return self._handlers.get(Step) == self._hold

    def devices(self) -> list[DeviceTimeline]:
        """The devices of this run and of those merged into it."""
        return [*self.window.devices.values(), *self.merged_devices]

    def settled(self) -> Run:
        """A twin in which nothing is pending. It shares what settling does not change: do not feed it."""
        twin = object.__new__(Run)
        twin.__dict__.update(self.__dict__)
        twin.window = self.window.copy()
        twin.window.settle(final=True)
        if self._next is not None:
            twin._next = None
            twin.events -= self._next.events
            twin = Run().merge(twin).merge(self._next.settled())
        return twin

    def merge(self, other: Run) -> Run:
        """Add what ``other`` recorded (another rank, another segment) to this run; returns itself."""
        from .fold.merge import merge_into

        merge_into(self, other.settled())
        return self

    def __add__(self, other: Run) -> Run:
        return Run().merge(self).merge(other)

    # -- about the recording

    def _on_header(self, event: Header) -> None:
        if self.header is None:
            self.header = event
            self._seen(event.mono_ns, event.mono_ns)
        elif (event.pid, event.host, event.rank) != (self.header.pid, self.header.host, self.header.rank):
            following = self._next = Run(self.since_step)
            for kind in self._handlers:
                self._handlers[kind] = following.feed
            following.feed(event)

    def _on_device(self, event: Device) -> None:
        self.device = event

    def _on_thread(self, event: Thread) -> None:
        if len(self.threads) < _THREADS:
            self.threads[event.tid] = event.name

    def _on_dropped(self, event: Dropped) -> None:
        self.dropped[event.why] = self.dropped.get(event.why, 0) + event.count

    def _on_end(self, event: End) -> None:
        self.end = event
        self._seen(event.t, event.t)
        self.now = ("finished", event.t)

    def _hold(self, event: Any) -> None:
        """Wait for ``since_step``: what came since the last step may belong to it."""
        assert self.since_step is not None
        if isinstance(event, Counters):
            self.baseline = event
        elif isinstance(event, Step | StepDigest):
            if event.num >= self.since_step:
                self._handlers.update(self._timed)
                for held in self._held:
                    if held.t >= event.t:  # type: ignore[attr-defined]
                        self._handlers[type(held)](held)
                self._held.clear()
                self.begin = None
                self._seen(event.t, event.t)
                self._handlers[type(event)](event)
            else:
                self._held.clear()
                self.step_num = event.num
                if event.num == self.since_step - 1:
                    self._handlers.update(self._timed)
                    self.begin = None
                    self._seen(event.t + event.dur, event.t + event.dur)
        else:
            self._held.append(event)
