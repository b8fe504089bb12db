"""The curves of a run: for each step its length, how idle the device was, and what the host spent its time on."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
_IDLE = "device_idle_ratio"
_FLOAT32 = 3.4e38  # about the most that TensorBoard's 32 bits hold
_AT_ONCE = 8192  # steps
_LONGEST = 120  # characters of a name in a tag: each value is written with its tag


class Point(NamedTuple):
    """The values of some curves, and the tags of these, at ``step``, taken at ``t`` (ns)."""

    step: int
    t: int
    tags: tuple[str, ...]
    values: tuple[float, ...]


def points(
    timeline: Timeline,
    steps: Sequence[StepSpan],
    devices: Sequence[Sequence[Execution]],
    input: Sequence[tuple[int, int]] = (),
) -> Iterator[Point]:
    """Every curve of a run, step by step. Tags are ``<step name>/<curve>``; times in seconds, idle as a ratio.

    ``devices``: the executions of each device, sorted; idle is the mean of the devices. A step counts what began in it.
    ``input``: stretches in which input was on its way while the device was idle, disjoint and sorted.
    What never happened in the run has no curve. Names of over 120 characters are cut, and numbered in their order.
    """
    cut: dict[str, str] = {}
    last: dict[str, int] = {}
    ends, numbers = array("q"), array("q")  # of the steps
    curves, rows = _of_steps(steps, timeline.series, devices, input)
    tags: dict[str, tuple[str, ...]] = {}
    for step, values in zip(steps, rows, strict=True):
        # Numbers that begin again (a second epoch) count on: a curve must not run back.
        following = last.get(step.name, -1) + 1
        number = step.num if following <= step.num < 2**62 else following
        last[step.name] = number
        ends.append(step.end)
        numbers.append(number)
        mine = tags.get(step.name)
        if mine is None:
            mine = tags[step.name] = tuple(f"{_short(step.name, cut)}/{curve}" for curve in curves)
        if step.end > step.start or _IDLE not in curves:
            yield Point(number, step.end, mine, values)
        else:  # a step of no length is neither busy nor idle
            some = [nth for nth, curve in enumerate(curves) if curve != _IDLE]
            yield Point(number, step.end, tuple(mine[nth] for nth in some), tuple(values[nth] for nth in some))
    order = np.argsort(np.frombuffer(ends, np.int64), kind="stable")
    over = np.frombuffer(ends, np.int64)[order]
    for event in timeline.counters:
        i = int(np.searchsorted(over, event.t, "right")) - 1
        number = numbers[int(order[i])] if i >= 0 else 0
        names = [f"counters/{_short(name, cut)}" for name in event.counts]
        names += [f"counters/{_short(name, cut)}_s" for name in event.seconds]
        counted = (*event.counts.values(), *event.seconds.values())
        yield Point(number, event.t, tuple(names), tuple(max(-_FLOAT32, min(one, _FLOAT32)) for one in counted))


def _of_steps(
    steps: Sequence[StepSpan],
    activities: Mapping[str, Series],
    devices: Sequence[Sequence[Execution]],
    input: Sequence[tuple[int, int]],
) -> tuple[list[str], Iterator[tuple[float, ...]]]:
    """The names of the curves, and their values in each step."""
    start, end = (np.array([getattr(step, which) for step in steps], np.int64) for which in ("start", "end"))
    length = end - start
    columns: dict[str, NDArray[Any]] = {"step_time_s": length / 1e9}
    if devices:
        busy = sum(_within([(e.start, e.end) for e in executions], start, end) for executions in devices)
        columns[_IDLE] = 1 - busy / (np.maximum(length, 1) * len(devices))
    if input:
        columns["idle_waiting_for_input_s"] = _within(input, start, end) / 1e9
    for kind, series in activities.items():
        seconds, count = _CURVES[kind]
        t, dur, n = (np.frombuffer(column, np.int64) for column in (series.t, series.dur, series.n))
        order = np.argsort(t, kind="stable")
        first, past = (np.searchsorted(t[order], moment) for moment in (start, end))
        past = np.maximum(first, past)
        columns[seconds] = _between(dur[order], first, past) / 1e9
        if count:
            columns[count] = _between(n[order], first, past)
    return list(columns), _rows(list(columns.values()), len(steps))


def _rows(columns: Sequence[NDArray[Any]], count: int) -> Iterator[tuple[float, ...]]:
    """The columns row by row, some at a time: numbers of Python's take four times the room."""
    for first in range(0, count, _AT_ONCE):
        some = (np.clip(column[first : first + _AT_ONCE], -_FLOAT32, _FLOAT32).tolist() for column in columns)
        yield from zip(*some, strict=True)


def _between(numbers: NDArray[np.int64], first: NDArray[np.int64], past: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of ``numbers[first:past]``, for many of these."""
    sums = np.concatenate(([0], np.cumsum(numbers)))
    found: NDArray[np.int64] = sums[past] - sums[first]
    return found


def _within(
    stretches: Sequence[tuple[int, int]], start: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.int64]:
    """ns of each ``[start, end)`` in ``stretches``, which are sorted and disjoint."""
    begins, ends = np.array(stretches, np.int64).reshape(-1, 2).T
    before = np.concatenate(([0], np.cumsum(ends - begins)))

    def until(moment: NDArray[np.int64]) -> NDArray[np.int64]:
        """ns of the stretches before a moment."""
        nth = np.searchsorted(begins, moment, "right")
        over = np.concatenate(([moment.min(initial=0)], ends))[nth] - moment
        found: NDArray[np.int64] = before[nth] - np.maximum(over, 0)
        return found

    return until(end) - until(start)


def _short(name: str, cut: dict[str, str]) -> str:
    """``name`` as a part of a tag; two that begin alike stay two curves by a number."""
    return name if len(name) <= _LONGEST else cut.setdefault(name, f"{name[:_LONGEST]}... ({len(cut) + 1})")
