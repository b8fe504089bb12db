"""What of a run lies in one step: idle time by cause, scopes, reads, and functions that were compiled.

From the stretches that are kept to be drawn. Of a long run the short ones are sums in cells (:mod:`..timeline.spans`):
a cell counts by the share of it that lies in the step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from statistics import median
from typing import Any

import msgspec

from xlaprof.analysis.evidence.idle_time import label as cause_name
from xlaprof.analysis.model import IdleStat, ScopeStat
from xlaprof.analysis.names import NOWHERE, Names
from xlaprof.analysis.timeline.host import OTHER, SCOPE, TRACING
from xlaprof.analysis.timeline.idle import Cause, LongGap
from xlaprof.analysis.timeline.kept import KeptWindow
from xlaprof.analysis.timeline.spans import Row, Spans, Stretch
from xlaprof.analysis.views.course import CAUSES_IN_ORDER, Bar
from xlaprof.analysis.views.details import Transfer
from xlaprof.analysis.views.drawn import DEVICE, HOST, SCOPES, TRANSFERS, Kind, told_of
from xlaprof.analysis.views.lanes import Lanes, place_of

_UNKNOWN = "not known"  # the cause of idle time in steps that were recorded as sums
_LITTLE = 0.02  # of a step: less idle time without a cause lies at its edges
_MOST = 500
_WAYS = {"transfer wait": False, "upload": True}  # parts of transfers: to the device?


class InStep(msgspec.Struct, frozen=True):
    """Seconds, of all steps that are one bar."""

    idle: IdleStat  # without gaps; summed over the devices
    scopes: tuple[ScopeStat, ...] = ()  # the longest first
    transfers: tuple[Transfer, ...] = ()  # the longest first; how long of it was waiting, and bytes, are not kept
    compiled: frozenset[str] = frozenset()  # names of functions that torch.compile or JAX compiled
    about: bool = False  # some of it was too short to be kept by itself


def in_step(bar: Bar, lanes: Lanes, window: KeptWindow, names: Names, start: int, end: int) -> InStep:
    """What lies in ``bar``, which is ``[start, end)`` ns."""
    spans, steps = lanes.spans, bar.count
    idle = _idle(bar, spans, window, names, start, end)
    rows = [(key, row) for key, row in spans.rows.items() if key[0] in (SCOPES, TRANSFERS)]
    about = any(_sums(row, spans.grain, start, end) for _, row in rows)
    about |= any(_sums(row, window.idle.spans.grain, start, end) for row in window.idle.spans.rows.values())
    made = (
        told_of(one.detail).op
        for key, row in spans.rows.items()
        for one in (row.within(start, end) if key[0] == HOST else ())
        if one.kind.part == "compile"
    )
    return InStep(
        idle=idle,
        scopes=tuple(_scopes(spans, names, idle, start, end, steps)),
        transfers=tuple(_transfers(spans, names, start, end, steps)),
        compiled=frozenset(names.text(name) for name in made if name),
        about=about,
    )


def _idle(bar: Bar, spans: Spans[Any, Kind], window: KeptWindow, names: Names, start: int, end: int) -> IdleStat:
    causes: Counter[Cause] = Counter()
    most = {cause: round(s * 1e9) for cause, s in zip(CAUSES_IN_ORDER, bar.parts, strict=True)}
    for row in window.idle.spans.rows.values():
        for one in row.within(start, end):
            gap: LongGap = one.detail
            causes.update(_within(gap, _clipped(one, start, end), most))
        for cause, (ns, _) in _sums(row, window.idle.spans.grain, start, end).items():
            causes[cause] += ns
    busy = 0
    for key, lane in spans.rows.items():
        if key[0] == DEVICE:
            busy += sum(_clipped(one, start, end) for one in lane.within(start, end))
            busy += sum(ns for ns, _ in _sums(lane, spans.grain, start, end).values())
    named: Counter[str] = Counter()
    for cause, ns in causes.items():
        named[cause_name(cause, names)] += ns
    whole = len(window.devices) * (end - start)
    rest = whole - busy - causes.total()
    if rest > _LITTLE * whole:
        named[_UNKNOWN] += rest
    idle = named.total()
    return IdleStat(
        window_s=whole / 1e9,
        busy_s=busy / 1e9,
        idle_s=idle / 1e9,
        idle_ratio=idle / whole if whole else 0.0,
        causes=tuple((name, ns / 1e9) for name, ns in named.most_common() if ns > 0),
        gaps=(),
    )


def _within(gap: LongGap, ns: int, most: dict[int, int]) -> dict[Cause, int]:
    """The blame of the part of a gap, of ``ns``, that lies in a step; ``most``: what the host did in it, by cause.

    When in a gap its causes were is not kept: none has more than the host spent on it in the step, and then each its
    share.
    """
    if ns >= gap.dur:
        return dict(gap.parts)
    bounded = {cause: min(part, _most(cause, most)) for cause, part in gap.parts}
    whole = sum(bounded.values())
    found = {cause: part * ns // whole if whole > ns else part for cause, part in bounded.items() if part}
    found[OTHER] = found.get(OTHER, 0) + ns - sum(found.values())
    return found


def _most(cause: Cause, most: dict[int, int]) -> int:
    if isinstance(cause, int):
        return most.get(min(cause, SCOPE), 0)
    return most[OTHER] + most[SCOPE] + most[TRACING]  # plain Python, or what a look found


def _scopes(
    spans: Spans[Any, Kind], names: Names, idle: IdleStat, start: int, end: int, steps: int
) -> Iterator[ScopeStat]:
    by_thread: dict[int, list[Stretch[Kind]]] = defaultdict(list)
    sums: Counter[int] = Counter()
    counts: Counter[int] = Counter()
    for (what, thread, _), row in sorted(spans.rows.items()):
        if what == SCOPES:
            by_thread[thread] += row.within(start, end)
            for kind, (ns, count) in _sums(row, spans.grain, start, end).items():
                sums[kind.name] += ns
                counts[kind.name] += count
    lengths: dict[int, list[int]] = defaultdict(list)
    errors: Counter[int] = Counter()
    self_ns = Counter(sums)
    for stretches in by_thread.values():
        for one, ns in own(stretches, start, end):
            self_ns[one.kind.name] += ns
            lengths[one.kind.name].append(_clipped(one, start, end))
            errors[one.kind.name] += bool(told_of(one.detail).text)
    blamed = dict(idle.causes)
    found = []
    for name in {*lengths, *sums}:
        known, text = lengths[name], names.text(name)
        mean = [sums[name] // counts[name]] if counts[name] else []
        found.append(
            ScopeStat(
                name=text,
                count=len(known) + counts[name],
                total_s=(sum(known) + sums[name]) / 1e9,
                self_s=self_ns[name] / 1e9,
                median_s=median(known or mean or [0]) / 1e9,
                max_s=max([*known, *mean], default=0) / 1e9,
                errors=errors[name],
                device_idle_s=blamed.get(f"scope {text}", 0.0),
                steps=steps,
            )
        )
    yield from sorted(found, key=lambda one: -one.total_s)


def _transfers(spans: Spans[Any, Kind], names: Names, start: int, end: int, steps: int) -> Iterator[Transfer]:
    found: dict[tuple[Any, str, bool], list[int]] = {}
    for key, row in spans.rows.items():
        if key[0] != TRANSFERS:
            continue
        for one in row.within(start, end):
            if one.kind.part in _WAYS:
                about = told_of(one.detail)
                where = place_of(about, names), names.text(about.op), _WAYS[one.kind.part]
                sums = found.setdefault(where, [0, 0])
                sums[0] += 1
                sums[1] += _clipped(one, start, end)
        for kind, (ns, count) in _sums(row, spans.grain, start, end).items():
            if kind.part in _WAYS and count:
                sums = found.setdefault((NOWHERE, "too short to be kept by line", _WAYS[kind.part]), [0, 0])
                sums[0] += count
                sums[1] += ns
    ordered = sorted(found.items(), key=lambda item: -item[1][1])[:_MOST]
    for (place, operation, up), (count, ns) in ordered:
        yield Transfer(place, operation, count, ns / 1e9, wait_s=-1, bytes=-1, steps=min(count, steps), up=up)


def _clipped(one: Stretch[Any], start: int, end: int) -> int:
    return max(0, min(one.end, end) - max(one.start, start))


def _sums(row: Row[Any], grain: int, start: int, end: int) -> dict[Any, tuple[int, int]]:
    """ns and stretches by kind in the row's cells, by the share of each cell that lies in ``[start, end)``."""
    found: dict[Any, list[float]] = {}
    for kind, cells in row.near(grain, start, end):
        for number, (ns, count) in cells:
            share = (min(end, (number + 1) * grain) - max(start, number * grain)) / grain
            if share > 0:
                sums = found.setdefault(kind, [0.0, 0.0])
                sums[0] += share * ns
                sums[1] += share * count
    return {kind: (round(ns), round(count)) for kind, (ns, count) in found.items()}


def own(stretches: list[Stretch[Kind]], start: int, end: int) -> Iterator[tuple[Stretch[Kind], int]]:
    """Each stretch with its ns between ``start`` and ``end`` without those of the stretches within it."""
    open_: list[list[int]] = []  # end, ns of those within, number
    ordered = sorted(stretches, key=lambda one: (one.start, -one.end))
    within = [0] * len(ordered)
    for number, one in enumerate(ordered):
        while open_ and open_[-1][0] <= one.start:
            open_.pop()
        ns = min(one.end, end) - max(one.start, start)
        if open_:
            within[open_[-1][1]] += min(ns, max(0, open_[-1][0] - one.start))
        open_.append([one.end, number])
    for number, one in enumerate(ordered):
        yield one, max(0, min(one.end, end) - max(one.start, start) - within[number])
