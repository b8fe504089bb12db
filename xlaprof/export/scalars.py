"""The curves of a run: for each step its length, how idle the device was, and what the host spent its time on."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import msgspec

from xlaprof.export.timeline import Execution, Series, StepSpan, Timeline

#: kind of activity -> the curve of its seconds, the curve of its count
_CURVES: dict[str, tuple[str, str]] = {
    "compile": ("compile_s", "compiles"),
    "tracing": ("tracing_s", "barriers"),
    "enqueue": ("enqueue_s", "executions"),
    "transfer from device": ("transfer_from_device_s", "transfers_from_device"),
    "transfer wait": ("transfer_wait_s", ""),
    "transfer to device": ("transfer_to_device_s", "transfers_to_device"),
    "fallback": ("fallback_s", "fallbacks"),
    "gc": ("gc_s", ""),
    "data wait": ("data_wait_s", ""),
}
_FLOAT32 = 3.4e38
_LONGEST = 120  # characters of a name in a tag: each value is written with its tag


class Point(msgspec.Struct, frozen=True):
    """A value of the curve ``tag`` at ``step``, taken at ``t`` (ns)."""

    tag: str
    step: int
    t: int
    value: float


def points(timeline: Timeline, steps: Sequence[StepSpan], devices: Sequence[Sequence[Execution]]) -> Iterator[Point]:
    """Every curve of a run, step by step. Tags are ``<step name>/<curve>``; times in seconds, idle as a ratio.

    ``devices``: the executions of each device, sorted; idle is the mean of the devices. A step counts what began in it.
    What never happened in the run has no curve. Names of over 120 characters are cut, and numbered in their order.
    """
    cut: dict[str, str] = {}
    busy = [_Busy(executions) for executions in devices]
    sums = {kind: _Sums(series) for kind, series in timeline.series.items()}
    last: dict[str, int] = {}
    passed: list[tuple[int, int]] = []  # (end, number) of the steps
    for step in steps:
        # Numbers that begin again (a second epoch) count on: a curve must not run back.
        following = last.get(step.name, -1) + 1
        number = step.num if following <= step.num < 2**62 else following
        last[step.name] = number
        passed.append((step.end, number))
        for curve, value in _of_step(step, sums, busy).items():
            yield Point(f"{_short(step.name, cut)}/{curve}", number, step.end, value)
    passed.sort()
    for event in timeline.counters:
        i = bisect_right(passed, event.t, key=lambda p: p[0]) - 1
        number = passed[i][1] if i >= 0 else 0
        for name, count in event.counts.items():
            yield Point(f"counters/{_short(name, cut)}", number, event.t, _float(count))
        for name, seconds in event.seconds.items():
            yield Point(f"counters/{_short(name, cut)}_s", number, event.t, _float(seconds))


def _of_step(step: StepSpan, sums: Mapping[str, _Sums], busy: Sequence[_Busy]) -> dict[str, float]:
    length = step.end - step.start
    values = {"step_time_s": length / 1e9}
    if length and busy:
        values["device_idle_ratio"] = 1 - sum(b.within(step.start, step.end) for b in busy) / (length * len(busy))
    for kind, series in sums.items():
        seconds, count = _CURVES[kind]
        n, total = series.between(step.start, step.end)
        values[seconds] = total / 1e9
        if count:
            values[count] = n
    return values


def _short(name: str, cut: dict[str, str]) -> str:
    """``name`` as a part of a tag; two that begin alike stay two curves by a number."""
    return name if len(name) <= _LONGEST else cut.setdefault(name, f"{name[:_LONGEST]}... ({len(cut) + 1})")


def _float(value: float) -> float:
    """``value``, at most what TensorBoard's 32 bits hold."""
    return max(-_FLOAT32, min(value, _FLOAT32))


class _Busy:
    """The busy time of one device within any stretch."""

    def __init__(self, executions: Sequence[Execution]) -> None:
        self._executions = executions
        self._starts = [e.start for e in executions]

    def within(self, start: int, end: int) -> int:
        """Nanoseconds in ``[start, end)``."""
        total = 0
        for i in range(max(bisect_right(self._starts, start) - 1, 0), bisect_left(self._starts, end)):
            e = self._executions[i]
            total += max(min(e.end, end) - max(e.start, start), 0)
        return total


class _Sums:
    """Prefix sums of a series: a stretch costs two look-ups."""

    def __init__(self, series: Series) -> None:
        rows = sorted(series)
        self._t = [t for t, _, _ in rows]
        self._n = [0, *accumulate(n for _, _, n in rows)]
        self._dur = [0, *accumulate(dur for _, dur, _ in rows)]

    def between(self, start: int, end: int) -> tuple[int, int]:
        """Number and ns of what began in ``[start, end)``."""
        a, b = bisect_left(self._t, start), bisect_left(self._t, end)
        return self._n[b] - self._n[a], self._dur[b] - self._dur[a]
