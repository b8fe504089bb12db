"""The fold at the heart of xlaprof: events in, one at a time or in batches, in bounded memory; totals out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Self

from xlaprof import events as ev
from xlaprof.analysis.model import Place
from xlaprof.columns import has_numpy
from xlaprof.events import AnyEvent, Event

from .distribution import economise
from .merge import merge_into
from .totals import Totals

#: Kinds of events about the recording as a whole: ``since_step`` does not leave them out.
TIMELESS = frozenset({ev.Text, ev.Stack, ev.Source, ev.Device, ev.Dropped, ev.End})

_RELIEVED_EVERY = 65_536  # events
_FEW, _MANY = 512, 16_384  # events at a time: in short recordings, and in long ones
_LONG = 32_768  # events of a long recording: importing numpy takes as long as counting so many
_HELD = 10_000  # events held back that may belong to step ``since_step``


class Fold(Totals):
    """The totals of a recording as it is read. Events may come in any order that a log has.

    ``since_step``: leave out everything before the first step with this number or a higher one (warm-up).
    ``long``: many events will follow, so import numpy at once.
    """

    def __init__(self, since_step: int | None = None, *, long: bool = False) -> None:
        super().__init__()
        self.since_step = since_step
        self.long = long
        self.waiting = since_step is not None  # ``since_step`` has not come yet
        self.begun = 0  # what ended before this moment does not count
        self._held: deque[Event] = deque(maxlen=_HELD)
        self._handlers: dict[type, Callable[[Any], None]] = {**self.handlers, ev.Header: self._on_header}
        if self.waiting:
            self._handlers |= dict.fromkeys(self.handlers.keys() - TIMELESS, self._hold)

    # -- feeding

    def feed(self, event: AnyEvent | Event) -> None:
        """Take one event into account."""
        self.events += 1
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)
        if not self.events % _RELIEVED_EVERY:
            self._relieve()

    def feed_all(self, events: Iterable[AnyEvent | Event]) -> Self:
        """Take many events into account; returns itself."""
        remaining = iter(events)
        while batch := list(islice(remaining, self._next_batch())):
            self.feed_batch(batch)
        return self

    def feed_batch(self, batch: Sequence[AnyEvent | Event]) -> Self:
        """Take events at hand into account, or lines of a log (:mod:`xlaprof.columns.lines`); returns itself."""
        done = 0
        while done < len(batch):
            past = len(batch) if self._is_long() else done + _FEW
            past = min(past, len(batch), done + _RELIEVED_EVERY - self.events % _RELIEVED_EVERY)
            if past - done > _FEW and has_numpy():
                from xlaprof.columns.lines import columns_of  # imports numpy: a tenth of a second

                from .columns.count import count

                count(self, columns_of(batch), done, past, self._feed_singly)
            else:
                self._feed_singly(batch[done:past])
            done = past
            if not self.events % _RELIEVED_EVERY:
                self._relieve()
        return self

    def _next_batch(self) -> int:
        """The number of events to take at once; in columns a little more than until the next settling."""
        if not self._is_long():
            return _FEW
        due = self.settled_at + self.settled_every - self.events
        if due < _FEW:
            due += self.settled_every
        return min(due + _FEW // 2, _MANY) if due > _FEW else _MANY

    def _is_long(self) -> bool:
        return self.long or self.events >= _LONG

    def _feed_singly(self, batch: Sequence[AnyEvent | Event]) -> None:
        # looked up one by one, in order: an event may change who handles the next
        for handler, event in zip(map(self._handlers.get, map(type, batch)), batch, strict=True):
            if handler is not None:
                handler(event)
        self.events += len(batch)

    def resume(self, moment: int) -> Self:
        """Begin in the middle of a recording, at the end of a barrier; returns itself."""
        self._begin_at(moment)
        self.last_barrier = moment
        return self

    def _begin_at(self, moment: int) -> None:
        self.begin, self.begun = None, moment
        self.cover(moment, moment)

    def _relieve(self) -> None:
        self.window.relieve()
        economise(self.distributions())

    # -- asking

    def resolve(self, stack_id: int) -> Place:
        """The line behind a stack id of the recording."""
        return self.names.place(stack_id)

    def settled(self) -> Self:
        """A twin in which nothing is pending. It shares all that settling does not change: do not feed it."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.window = self.window.copy()
        twin.window.settle(final=True)
        following = self.following
        if isinstance(following, Fold):
            twin.following = None
            twin.events -= following.events
            twin = type(self)().merge(twin).merge(following)
        return twin

    def merge(self, other: Fold) -> Self:
        """Add another rank's or segment's totals to these; returns itself."""
        merge_into(self, other.settled())
        return self

    def __add__(self, other: Fold) -> Self:
        return type(self)().merge(self).merge(other)

    # -- about the recording

    def _on_header(self, event: ev.Header) -> None:
        if self.header is None:
            self.header = event
            self.cover(event.mono_ns, event.mono_ns)
        elif (event.pid, event.host, event.rank) != (self.header.pid, self.header.host, self.header.rank):
            following = self.following = type(self)(self.since_step)
            for kind in self._handlers:
                self._handlers[kind] = following.feed
            following.feed(event)

    def _hold(self, event: Any) -> None:
        """Wait for step ``since_step``: events since the last step may belong to it."""
        assert self.since_step is not None
        if isinstance(event, ev.Counters):
            self.baseline = event
        elif not isinstance(event, ev.Step | ev.StepDigest):
            self._held.append(event)
        elif event.num >= self.since_step:
            self._start()
            for held in self._held:
                if held.t >= event.t:  # type: ignore[attr-defined]
                    self._handlers[type(held)](held)
            self._held.clear()
            self._begin_at(event.t)
            self._handlers[type(event)](event)
        else:
            self._held.clear()
            self.step_num = event.num
            if event.num == self.since_step - 1:
                self._start()
                self._begin_at(event.t + event.dur)

    def _start(self) -> None:
        self.waiting = False
        self._handlers |= self.handlers
