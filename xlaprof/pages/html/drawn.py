"""The timeline and the steps of the page: rows of numbers, as fine as the page's size allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from xlaprof.analysis.evidence.idle_time import label as cause_name
from xlaprof.analysis.evidence.idle_time import place_of
from xlaprof.analysis.names import Names
from xlaprof.analysis.places import culprit, span
from xlaprof.analysis.timeline.host import CAUSES, SCOPE
from xlaprof.analysis.timeline.idle import Cause, LongGap
from xlaprof.analysis.timeline.kept import KeptWindow, StepRow
from xlaprof.analysis.timeline.spans import Row
from xlaprof.analysis.views.drawn import DEVICE, HOST, STEPS, TRANSFERS, Kind, Told, told_of
from xlaprof.analysis.views.lanes import label, part_of, title
from xlaprof.text.parts import PARTS
from xlaprof.text.strings import printable

from .gather import Gathered
from .index import Index

_ROWS = 64  # further ones are left out
_FINE_NS = 60 * 10**9  # longer runs are drawn to the microsecond
_BLAMED = 6  # causes of a gap, the largest

#: name of a part of a step -> its cause
_CAUSE = {name: cause for cause, name in CAUSES.items()} | {"named scopes": SCOPE}


def steps(window: KeptWindow, names: Names, devices: int, begin: int) -> list[dict[str, Any]]:
    """The steps of each name over the whole run, the name with most time first. Nanoseconds since the begin."""
    named = {name: rows for name, rows in window.steps.items() if name} or window.steps
    drawn = []
    for name, rows in named.items():
        later = list(rows)
        drawn.append(
            {
                "name": names.text(name) if name else "step",
                "inferred": not name,
                "first": _step(rows.first, devices, begin) if rows.first else None,
                "rows": [_step(row, devices, begin) for row in later],
                "total": sum(row.total for row in later) or (rows.first.total if rows.first else 0),
            }
        )
    return sorted(drawn, key=lambda one: -one["total"])


def _step(row: StepRow, devices: int, begin: int) -> list[int]:
    """begin, first and last number, steps, ns of all and of the longest, ns busy, and ns of each of PARTS."""
    parts = [row.parts[_CAUSE[name]] for name, _ in PARTS]
    busy = row.busy // max(1, devices)
    return [max(0, row.start - begin), row.first, row.last, row.steps, row.total, row.most, busy, *parts]


def timeline(of: Gathered, index: Index) -> dict[str, Any]:
    """All rows, with times in ``unit_ns``."""
    begin = of.run.begin or 0
    wall = max(1, of.run.last - begin)
    unit = 1 if wall <= _FINE_NS else 1000
    drawing = _Drawing(of, index, begin, unit)
    keys = sorted(of.lanes.spans.rows, key=lambda key: (key[0], *key) if key[0] >= TRANSFERS else (-1, key[1], *key))
    rows = [drawing.row(key, of.lanes.spans.rows[key]) for key in keys[:_ROWS]]
    if not any(key[0] == STEPS for key in keys) and (inferred := of.window.steps.get(0)):
        rows.insert(0, drawing.inferred(([inferred.first] if inferred.first else []) + list(inferred)))
    for idle in of.window.idle.spans.rows.values():
        rows.append(drawing.gaps(idle, of.window.idle.spans.grain))
    return {
        "unit_ns": unit,
        "wall": wall // unit,
        "rows": rows,
        "rows_left_out": max(0, len(keys) - _ROWS),
        "devices": len(of.window.devices),
        "close_ups": [[one.why, max(0, one.start - begin), one.end - begin] for one in of.close_ups],
    }


class _Drawing:
    def __init__(self, of: Gathered, index: Index, begin: int, unit: int) -> None:
        self._run, self._names = of.run, of.run.names
        self._threads = of.lanes.threads
        self._devices = len(of.window.devices)
        self._grain = of.lanes.spans.grain
        self._index = index
        self._begin, self._unit = begin, unit
        self._stacks: dict[int, int] = {}
        self._holes: dict[tuple[int, int], tuple[int, int]] = {}
        self._causes: dict[Cause, int] = {}

    def row(self, key: tuple[int, int, int], row: Row[Kind]) -> dict[str, Any]:
        """Stretches as begin (since the one before), length, label, place; cells as :meth:`_cells` has them."""
        numbers: list[int] = []
        last = 0
        for one in sorted(row.whole, key=lambda one: (one.start, -one.end)):
            if one.end < self._begin:
                continue
            start, length = self._span(one.start, one.end)
            numbers += (start - last, length, *self._told(one.kind, told_of(one.detail)))
            last = start
        cells = self._cells(row, self._grain, lambda kind: self._told(kind, None)[0])
        of = {STEPS: "steps", HOST: "host", DEVICE: "device"}.get(key[0], "other")
        name = title(key, self._threads, self._devices)
        return {"title": name, "of": of, "depth": key[2], "spans": numbers, "cells": cells, "cell": self._cell()}

    def inferred(self, rows: Iterable[StepRow]) -> dict[str, Any]:
        """Steps that the program does not name."""
        numbers: list[int] = []
        last = 0
        for row in rows:
            start, length = self._span(row.start, row.start + row.total)
            text = f"step {row.first}" if row.steps == 1 else f"steps {row.first} to {row.last}"
            numbers += (start - last, length, self._index.label(text, "step"), 0)
            last = start
        name = "steps (from barrier to barrier)"
        return {"title": name, "of": "steps", "depth": 0, "spans": numbers, "cells": [], "cell": 1}

    def gaps(self, row: Row[Cause], grain: int) -> dict[str, Any]:
        """Stretches as in :meth:`row`; ``blame`` of each: step, causes, and of each cause its label and length."""
        numbers: list[int] = []
        blame: list[int] = []
        last = 0
        for one in sorted(row.whole, key=lambda one: one.start):
            gap: LongGap = one.detail
            start, length = self._span(one.start, one.end)
            place = self._index.place(place_of(gap, self._run))
            numbers += (start - last, length, self._cause(gap.parts[0][0]), place)
            last = start
            shown = gap.parts[:_BLAMED]
            blame += (gap.step, len(shown))
            for cause, ns in shown:
                blame += (self._cause(cause), ns // self._unit)
        cells = self._cells(row, grain, self._cause)
        told = {"title": "device idle", "of": "gap", "depth": 0, "spans": numbers, "blame": blame}
        return told | {"cells": cells, "cell": max(1, grain // self._unit)}

    def _cell(self) -> int:
        return max(1, self._grain // self._unit)

    def _span(self, start: int, end: int) -> tuple[int, int]:
        start = max(start, self._begin)
        return (start - self._begin) // self._unit, max(0, end - start) // self._unit

    def _cells(self, row: Row[Any], grain: int, number: Callable[[Any], int]) -> list[int]:
        """Of each cell: its begin since the one before, kinds, and of each kind its label, length, and stretches."""
        numbers: list[int] = []
        last = 0
        for at, cell in sorted(row.by_cell().items()):
            start = (at * grain - self._begin) // self._unit
            if start + grain // self._unit < 0:
                continue
            numbers += (max(0, start) - last, len(cell))
            last = max(0, start)
            for kind, ns, count in cell:
                numbers += (number(kind), ns // self._unit, count)
        return numbers

    def _told(self, kind: Kind, told: Told | None) -> tuple[int, int]:
        """Numbers of the label and of the place."""
        if told is not None and kind.part == "python" and told.after:
            return self._hole(told.stack, told.after)
        text = self._index.label(label(kind, told, self._names), kind.part)
        return text, self._stack(told.stack) if told is not None else 0

    def _stack(self, stack: int) -> int:
        found = self._stacks.get(stack)
        if found is None:
            found = self._stacks[stack] = self._index.place(self._names.place(stack))
        return found

    def _hole(self, before: int, after: int) -> tuple[int, int]:
        found = self._holes.get((before, after))
        if found is None:
            one, two = self._names.bracket(before, after)
            number = self._index.label(f"python {span(one, two)}", "python")
            found = self._holes[before, after] = number, self._index.place(culprit(one, two))
        return found

    def _cause(self, cause: Cause) -> int:
        found = self._causes.get(cause)
        if found is None:
            found = self._causes[cause] = self._index.label(cause_name(cause, self._names), part_of(cause))
        return found


def named_part(name: str) -> str:
    """The same of a cause by its name, as reports have it."""
    first = printable(name).partition(" ")[0]
    if first in ("scope", "python"):
        return "named scopes" if first == "scope" else "python"
    return name if name in CAUSES.values() else "waiting" if first == "waiting" else "other"
