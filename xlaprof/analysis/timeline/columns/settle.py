""":meth:`~xlaprof.analysis.timeline.window.Window.settle` in columns, for long recordings.

The totals are the same to the last nanosecond. Time that cannot be settled yet goes back to the window's lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from xlaprof.analysis.timeline import window
from xlaprof.analysis.timeline.device import DeviceTimeline
from xlaprof.analysis.timeline.idle import SampleSpan, TracingLeft
from xlaprof.analysis.timeline.window import Window

from .divide import divide
from .host import paint
from .idle import blame
from .intervals import FAR, Column, NotVectorizable, grouped, require, rows, table, up_to


class Fresh(NamedTuple):
    """New items of the window's lists, in columns: not in the lists yet."""

    unpainted: Column  # start, end, cause, stack of what the host did, in the order in which it came
    runs: Column  # enqueued, start, end, device, stack of the read of executions
    holes: Column  # start, end, before, after
    waits: Column  # start, end, ns waited
    recorded: Column  # start, end, done, ns, operations
    traced: Column  # start, end, ns left
    steps: Column  # start, end, number, ordinal, name, first, ns of tracing
    digests: Column  # start, end, ns the device was busy meanwhile

    def pour(self, into: Window) -> None:
        """Move everything into the window's lists."""
        into.host.unpainted += rows(*self.unpainted)
        for device, those in grouped(self.runs[3]):
            start, end = self.runs[1:3, those]
            into.devices[device].pending += rows(start, end, np.full(len(those), -1))
        if self.digests.shape[1]:
            into.devices[0].pending += rows(*self.digests)
        into.holes += rows(*self.holes)
        into.traced += rows(*self.traced)
        into.open_steps += rows(*self.steps)
        self.pour_schedule(into)

    def pour_schedule(self, into: Window) -> None:
        """Move into the schedule's lists what a prediction replays."""
        into.schedule.executions += rows(*self.runs)
        into.schedule.holes += rows(*self.holes)
        into.schedule.waits += rows(*self.waits)
        into.schedule.recordings += rows(*self.recorded)


def nothing() -> Fresh:
    return Fresh(*(np.empty((width, 0), np.int64) for width in (4, 5, 4, 3, 5, 3, 7, 3)))


class _Pending(NamedTuple):
    """Executions of a device, sorted: start, end, ns it was busy (-1: all of it)."""

    timeline: DeviceTimeline
    start: Column
    end: Column
    worked: Column

    def settle(self, horizon: int, final: bool) -> tuple[Column, Column]:
        """Like the timeline's ``settle``: idle and busy stretches (rows: start, end)."""
        device, start, end, worked = self
        if device.first is None and len(start) and end[0] <= horizon:
            device.first = device.last = int(start[0])
        late = np.flatnonzero(end > horizon)
        past = int(late[0]) if len(late) else len(end)
        device.pending = rows(start[past:], end[past:], worked[past:])
        long = end[:past] > start[:past]
        device.reached = max([device.reached, *end[:past][~long][-1:].tolist()])  # sorted by start
        start, end, worked = start[:past][long], end[:past][long], worked[:past][long]
        last = up_to(device.last, end)
        begin = np.maximum(start, last[:-1])
        ran, idle = end > begin, begin > last[:-1]
        quiet = np.stack((last[:-1], begin))[:, ran & idle]
        digest = ran & (worked >= 0)
        ran &= worked < 0
        worked = np.minimum(worked, end - begin)[digest]
        busy = np.stack((begin[ran], end[ran]))
        device.last = int(last[-1])
        if final and device.reached > device.last:
            quiet = np.append(quiet, [[device.last], [device.reached]], axis=1)
            device.last = device.reached
        device.idle += int((quiet[1] - quiet[0]).sum())
        device.busy += int((busy[1] - busy[0]).sum()) + int(worked.sum())
        device.digest_idle += int((end - begin)[digest].sum()) - int(worked.sum())
        return quiet, busy


def settle_held(of: Window, final: bool) -> bool:
    """Like :func:`settle` where there is nothing new."""
    return settle(of, nothing(), final)


def settle(of: Window, fresh: Fresh, final: bool = False) -> bool:
    """Turn what can change no more into totals; with ``final``, everything.

    False: nothing was settled, ``fresh`` went into the window's lists.
    """
    try:
        segments = paint(_with([*of.host.segments, *of.host.unpainted], fresh.unpainted), of.host.horizon)
    except (NotVectorizable, OverflowError):
        of.host.unpainted += rows(*fresh.unpainted)
        of.host.paint()
        of.host.segments.sort()
        fresh = fresh._replace(unpainted=nothing().unpainted)
        segments = None
    try:
        if segments is None:
            segments = table(of.host.segments, 4)
        require(segments.shape[1] < window.GIVE_UP_AT and _is_sane(of))
        pending = [_pending(device, timeline, fresh) for device, timeline in of.devices.items()]
        holes, traced, steps = (
            _with(of.holes, fresh.holes),
            _with(of.traced, fresh.traced),
            _with(of.open_steps, fresh.steps),
        )
    except (NotVectorizable, OverflowError):
        fresh.pour(of)
        return False
    horizon = window.FOREVER if final else _horizon(of, segments, pending)
    stretches = [one.settle(horizon, final) for one in pending]
    if not final:
        horizon = min([horizon, *(one.timeline.floor() for one in pending)])
    segments = _take(of, segments, horizon)
    now = holes[:, holes[0] < horizon]
    samples = [one for one in of.samples if one.start < horizon]
    if samples:
        samples = window.stretched(samples, rows(*now))
    _schedule(of, fresh, horizon, segments, steps, samples, final)
    steps = steps[:, np.argsort(steps[0], kind="stable")]
    early = int(np.searchsorted(traced[0], horizon))  # sorted
    left = [_blame(of, quiet, segments, now, traced[:, :early], steps, samples) for quiet, _ in stretches]
    # each of several devices has all of the tracing; the part that the first one leaves is carried on
    unused = (left or [traced[:, :early]])[0]
    of.traced = rows(*unused[:, unused[1] > horizon]) + rows(*traced[:, early:])
    busy = np.concatenate([np.empty((2, 0), np.int64), *(ran for _, ran in stretches)], axis=1)
    _divide(of, horizon, segments, steps, busy[:, np.lexsort(busy[::-1])])
    of.holes = rows(*holes[:, holes[1] > horizon])
    of.samples = [one for one in of.samples if one.end > horizon]
    of.plan_next_settle()
    return True


def _is_sane(of: Window) -> bool:
    """Whether all held numbers are times: a damaged log may hold others."""
    moments = [of.host.horizon, of.steps_end, of.schedule.end or 0, *(device.last for device in of.devices.values())]
    moments += [sum(carried.parts) for carried in of.carried.values()]
    return all(-window.FOREVER <= moment <= window.FOREVER for moment in moments)


def _with(held: Sequence[tuple[int, ...]], fresh: Column) -> Column:
    return np.concatenate((table(held, len(fresh)), fresh), axis=1) if held else fresh


def _pending(device: int, timeline: DeviceTimeline, fresh: Fresh) -> _Pending:
    mine = fresh.runs[1:3, fresh.runs[3] == device]
    held = [table(timeline.pending, 3), np.concatenate((mine, np.full((1, mine.shape[1]), -1)))]
    pending = np.concatenate([*held, *([] if device else [fresh.digests])], axis=1)
    return _Pending(timeline, *pending[:, np.lexsort(pending[::-1])])


def _horizon(of: Window, segments: Column, pending: Sequence[_Pending]) -> int:
    """The moment before which the host's intervals are complete."""
    kept = window.KEEP
    return max(
        [of.steps_end, *(int(one[-kept]) for one in (segments[0], *(run.start for run in pending)) if len(one) > kept)]
    )


def _take(of: Window, segments: Column, horizon: int) -> Column:
    """The segments before ``horizon``; the others stay with the host."""
    host = of.host
    cut = int(np.searchsorted(segments[0], horizon))
    taken, left = segments[:, :cut].copy(), rows(*segments[:, cut:])
    if cut and taken[1, -1] > horizon:
        _, end, cause, stack = taken[:, -1].tolist()
        left.insert(0, (horizon, end, cause, stack))
        taken[1, -1] = horizon
    host.hold(left, horizon)
    return taken


def _schedule(
    of: Window,
    fresh: Fresh,
    horizon: int,
    segments: Column,
    steps: Column,
    samples: Sequence[SampleSpan],
    final: bool,
) -> None:
    schedule = of.schedule
    closed = steps[:, (steps[1] <= horizon) & (steps[0] >= (schedule.end or -FAR))]
    if final or schedule.keeps_next:
        fresh.pour_schedule(of)
        schedule.settle(None if final else horizon, rows(*segments), rows(*closed), samples)
        return
    lists: tuple[tuple[list[Any], Column, int], ...] = (
        (schedule.executions, fresh.runs, 0), (schedule.waits, fresh.waits, 1),
        (schedule.recordings, fresh.recorded, 2), (schedule.holes, fresh.holes, 1),
    )  # fmt: skip
    late = [columns[moment] > horizon for _, columns, moment in lists]
    schedule.skip(horizon, bool(segments.shape[1] + closed.shape[1]) or not all(one.all() for one in late))
    for (held, columns, _), which in zip(lists, late, strict=True):
        held += rows(*columns[:, which])


def _blame(
    of: Window,
    quiet: Column,
    segments: Column,
    holes: Column,
    traced: Column,
    steps: Column,
    samples: Sequence[SampleSpan],
) -> Column:
    """Blame the gaps of one device; returns what they left of ``traced``."""
    if not samples:
        with suppress(OverflowError):
            return blame(of.idle, quiet, segments, holes, traced, steps)
    stretches = [TracingLeft(*stretch) for stretch in rows(*traced)]
    of.idle.blame(rows(*quiet), rows(*segments), rows(*holes), stretches, rows(*steps), samples)
    return table([(one.start, one.end, one.left) for one in stretches], 3)


def _divide(of: Window, horizon: int, segments: Column, steps: Column, busy: Column) -> None:
    """Give steps the time that lies in them; steps over by ``horizon`` are counted."""
    over = steps[1] <= horizon
    counted, of.open_steps = steps[:, over], rows(*steps[:, ~over])
    if counted.shape[1]:
        ended = of.carried.keys() & set(counted[3].tolist()) if of.carried else ()
        ran, parts = divide(counted, {one: of.carried.pop(one) for one in ended}, segments, busy)
        total = counted[1] - counted[0]
        for key, those in grouped(2 * counted[4] + counted[5]):
            ns = parts[those].sum(axis=0).tolist()
            of.split(key >> 1, bool(key & 1)).add(len(those), int(total[those].sum()), int(ran[those].sum()), ns)
        of.passed_at_once(counted[:5], ran, parts)
    until = max([int(one[1, -1]) for one in (segments, busy) if one.shape[1]], default=0)
    begun = [step for step in of.open_steps if step[0] < until]
    if begun:
        since = min(step[0] for step in begun)
        recent = max(0, int(np.searchsorted(busy[0], since, "right")) - 1)
        of.carry_on(begun, rows(*segments[:, segments[1] > since]), rows(*busy[:, recent:]))
