"""Events of a recording as rows of a timeline: what each thread of the host did, transfers, what each device ran."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from xlaprof import events as ev
from xlaprof.analysis.model import Place
from xlaprof.analysis.names import Names
from xlaprof.analysis.places import culprit
from xlaprof.analysis.run import Run
from xlaprof.analysis.sums import RECORDS
from xlaprof.analysis.timeline.host import CAUSES, GLIMPSE, OTHER, SCOPE, WAIT
from xlaprof.analysis.timeline.idle import Cause, Seen
from xlaprof.analysis.timeline.spans import Spans
from xlaprof.columns import has_numpy, present
from xlaprof.text.quantities import plural

from .drawn import (
    DEEPEST,
    DEVICE,
    DEVICES,
    DRAWN,
    HOST,
    LATEST,
    SCOPES,
    SEEN,
    STEPS,
    THREADS,
    TRANSFERS,
    Kind,
    Told,
)  # fmt: skip

_RELIEVED_EVERY = 16_384  # events
_FEW = 512  # events at a time
_KINDS = 4_096  # that are kept, to be one object each; a recording may name more

#: state of a sample -> what it is called
_STATES = {
    "data": "data wait", "checkpoint": "checkpoint", "gil": "waiting", "wait": "waiting", "cpu": "waiting",
    "torch": "tracing", "import": "import",
}  # fmt: skip


_kind = lru_cache(_KINDS)(Kind)


class Lanes:
    """A fold over the events of one recording: :attr:`spans` by (row, thread or device, depth)."""

    def __init__(self) -> None:
        self.spans: Spans[tuple[int, int, int], Kind] = Spans()
        self.threads: dict[int, str] = {}
        self.uploads: dict[int, list[int]] = {}  # Stack id -> [uploads, ns, bytes]
        self._fed = 0

    def feed(self, event: Any) -> None:
        """Draw ``event``, if it took time."""
        self._draw(event)
        self._fed += 1
        if not self._fed % _RELIEVED_EVERY:
            self.spans.relieve()

    def feed_all(self, events: Sequence[Any]) -> None:
        """Draw many events."""
        done = 0
        while done < len(events):
            past = min(done + _RELIEVED_EVERY - self._fed % _RELIEVED_EVERY, len(events))
            self._fed += past - done
            if self.spans.grain and past - done > _FEW and has_numpy():
                from xlaprof.columns.lines import columns_of  # imports numpy

                from .short import draw_short

                left = draw_short(self.spans, self.add_uploads, columns_of(events), done, past)
                whole: Sequence[Any] = [events[one] for one in left]
            else:
                whole = events[done:past]
            done = past
            for event in whole:
                self._draw(event)
            if not self._fed % _RELIEVED_EVERY:
                self.spans.relieve()

    def add_uploads(self, stack: int, count: int, ns: int, size: int) -> None:
        """Count uploads of a line."""
        sums = self.uploads.setdefault(stack, [0, 0, 0]) if len(self.uploads) < RECORDS else [0, 0, 0]
        sums[0] += count
        sums[1] += ns
        sums[2] += size

    def _draw(self, event: Any) -> None:
        kind = type(event)
        drawn = DRAWN.get(kind)
        if drawn is None:
            if kind is ev.Thread and event.tid <= THREADS:
                self.threads[event.tid] = event.name
            return
        depth = 0
        if kind is ev.Execute:
            start, end, which = event.start, event.end, min(event.device, DEVICES)
        else:
            start, which = event.t, min(getattr(event, "tid", 1), THREADS + 1)
            end = start + getattr(event, "dur", 0)
            if kind is ev.Scope:
                depth = min(event.depth, DEEPEST)
            elif kind is ev.TransferToDevice:
                self.add_uploads(event.stack, 1, event.dur, event.bytes)
        if not start <= end < LATEST:
            return
        part = drawn.part or _STATES.get(event.state, "python")
        what = _kind(part, getattr(event, drawn.name) if drawn.name else 0)
        detail = drawn.detail(event) if end - start >= self.spans.grain else None
        for row in drawn.rows:
            self.spans.add((row, which, depth), start, end, what, detail)
        if kind is ev.StepDigest and (busy := min(event.busy, event.dur)):
            text = f"{plural(event.executions, 'execution')} of a step recorded as sums: when is not known"
            self.spans.add((DEVICE, 0, 0), start, start + busy, Kind("device"), Told(text=text))


def feed_both(run: Run, lanes: Lanes, events: Sequence[Any]) -> None:
    """Count ``events``, and draw those of the first recording in the log that the run does not leave out."""
    singly = len(events) if run.waiting else 0
    if not singly and ev.Header in present(events):
        singly = 1 + max(n for n, event in enumerate(events) if type(event) is ev.Header)
    for event in events[:singly]:
        run.feed(event)
        if run.following is None and not run.waiting:
            lanes.feed(event)
    following = events[singly:] if singly else events
    run.feed_batch(following)
    if run.following is None:
        lanes.feed_all(following)


def title(key: tuple[int, int, int], threads: dict[int, str], devices: int) -> str:
    """What the row ``key`` is called."""
    row, which, _ = key
    if row == DEVICE:
        return f"device {which}" if devices > 1 else "device"
    thread = threads.get(which) or ("main" if which == 1 else f"thread {which}")
    thread = "further threads" if which > THREADS else thread
    what = {STEPS: "steps", SCOPES: "scopes", HOST: "host", SEEN: "seen from outside", TRANSFERS: "transfers"}[row]
    return f"{thread}: {what}"


def label(kind: Kind, told: Told | None, names: Names) -> str:
    """What a stretch, or all of its kind in a cell, is called."""
    name = names.text(kind.name) if kind.name else ""
    if told is None:
        return name or kind.part
    if kind.part == "step":
        return f"{name or 'step'} {told.text}"
    if kind.part in ("device", "dispatch") and told.text:
        return told.text
    what = [name or kind.part, names.text(told.op) if told.op else "", told.text]
    return ", ".join(filter(None, what))


def place_of(told: Told, names: Names) -> Place:
    """The line of a stretch, of plain Python the one of the two around it to show."""
    return culprit(*names.bracket(told.stack, told.after)) if told.after else names.place(told.stack)


def part_of(cause: Cause) -> str:
    """The part of a step that a cause of idle time is drawn as."""
    if isinstance(cause, Seen):
        cause = cause.cause
        return "waiting" if cause == WAIT else "python" if cause in (OTHER, GLIMPSE) else CAUSES[cause]
    if isinstance(cause, tuple):
        return "python"
    return "named scopes" if cause >= SCOPE else CAUSES[cause]
