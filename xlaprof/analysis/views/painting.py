"""A stretch of a run as rows of cells: what filled most of each cell, in each row of the timeline.

A cell is as long as the stretch is wide: whatever is zoomed to, as much is drawn as a screen shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from xlaprof.analysis.evidence.idle_time import label as cause_name
from xlaprof.analysis.evidence.idle_time import place_of
from xlaprof.analysis.model import Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.run import KeptRun
from xlaprof.analysis.timeline.idle import Cause, LongGap
from xlaprof.analysis.timeline.kept import KeptWindow
from xlaprof.analysis.timeline.spans import Row, Stretch
from xlaprof.analysis.views.drawn import DEVICE, TRANSFERS, Kind, told_of
from xlaprof.analysis.views.lanes import Lanes, label, part_of, title
from xlaprof.analysis.views.lanes import place_of as line_of

ROWS = 40  # further ones are left out
EIGHTHS = 8
_LEAST_NS = 1_000  # that a cell lasts

Cell = tuple[str, int]  # the part that filled most of it, and the eighths of it that were filled
_EMPTY: Cell = ("", 0)


class View(msgspec.Struct, frozen=True):
    """What is to be seen. ``end_s`` 0: all there is. ``row`` and ``cell``: what is to be told of."""

    width: int  # cells
    start_s: float = 0.0
    end_s: float = 0.0
    row: int = 0
    cell: int = -1  # -1: nothing


class Lane(msgspec.Struct, frozen=True):
    """A row."""

    title: str
    cells: tuple[Cell, ...]


class Account(msgspec.Struct, frozen=True):
    """What is known of the longest stretch in a cell."""

    text: str
    start_s: float
    dur_s: float
    place: Place
    blame: tuple[tuple[str, float], ...] = ()  # of idle time: cause, seconds
    count: int = 1  # stretches in the cell


class Painting(msgspec.Struct, frozen=True):
    """What is seen."""

    view: View = View(0)
    whole_s: float = 0.0  # the length of the run
    lanes: tuple[Lane, ...] = ()
    told: Account | None = None


class _Drawn(NamedTuple):
    """One row to be drawn: how its stretches, and the kinds in its cells, are called and told."""

    title: str
    row: Row[Any]
    grain: int
    part: Callable[[Any], str]
    tell: Callable[[Stretch[Any]], tuple[str, Place, tuple[tuple[str, float], ...]]]


def paint(view: View, lanes: Lanes, window: KeptWindow, run: KeptRun, rows: tuple[Lane, ...] | None = None) -> Painting:
    """Draw ``view`` of ``run``, of which ``window`` is settled. ``rows``: those of this stretch, drawn before."""
    begin, last = run.begin or 0, run.last
    whole = max(1, last - begin)
    start = begin + max(0, round(view.start_s * 1e9))
    end = begin + round(view.end_s * 1e9) if view.end_s > view.start_s else last
    cell = max(_LEAST_NS, -(-(end - start) // max(1, view.width)))
    drawn = list(_rows(lanes, window, run))
    told = None
    if 0 <= view.row < len(drawn) and view.cell >= 0:
        told = _account(drawn[view.row], start + view.cell * cell, cell, begin)
    shown = msgspec.structs.replace(
        view, start_s=(start - begin) / 1e9, end_s=(start + view.width * cell - begin) / 1e9
    )
    return Painting(
        view=shown,
        whole_s=whole / 1e9,
        lanes=tuple(Lane(one.title, _cells(one, start, cell, view.width)) for one in drawn) if rows is None else rows,
        told=told,
    )


def _rows(lanes: Lanes, window: KeptWindow, run: KeptRun) -> Iterable[_Drawn]:
    spans, names = lanes.spans, run.names
    keys = sorted(spans.rows, key=lambda key: (key[0] in (DEVICE, TRANSFERS), key[1] * (key[0] < DEVICE), key))

    def tell(one: Stretch[Kind]) -> tuple[str, Place, tuple[tuple[str, float], ...]]:
        about = told_of(one.detail)
        return label(one.kind, about, names), line_of(about, names), ()

    def tell_gap(one: Stretch[Cause]) -> tuple[str, Place, tuple[tuple[str, float], ...]]:
        gap: LongGap = one.detail
        blame = tuple((cause_name(cause, names), ns / 1e9) for cause, ns in gap.parts)
        where = f", step {gap.step:,}" if gap.step >= 0 else ""
        return f"device idle{where}", place_of(gap, run), blame

    for key in keys[:ROWS]:
        name = title(key, lanes.threads, len(window.devices))
        yield _Drawn(name, spans.rows[key], spans.grain, lambda kind: kind.part, tell)
    for row in window.idle.spans.rows.values():
        yield _Drawn("device idle", row, window.idle.spans.grain, part_of, tell_gap)


def _cells(of: _Drawn, start: int, cell: int, width: int) -> tuple[Cell, ...]:
    end = start + cell * width
    owner = [""] * width  # of cells that one stretch fills
    filled: list[dict[str, int]] = [{} for _ in range(width)]
    for one in sorted(of.row.within(start, end), key=lambda one: one.start - one.end):  # the shorter over the longer
        part = of.part(one.kind)
        since, until = max(one.start, start) - start, min(one.end, end) - start
        first, past = since // cell, min(width - 1, until // cell)
        if first == past:
            filled[first][part] = filled[first].get(part, 0) + until - since
            continue
        filled[first][part] = filled[first].get(part, 0) + (first + 1) * cell - since
        for n in range(first + 1, past):
            owner[n] = part
        filled[past][part] = filled[past].get(part, 0) + until - past * cell
    for kind, sums in of.row.near(of.grain, start, end):
        part = of.part(kind)
        for number, (ns, _) in sums:
            at = number * of.grain
            if start <= at < end:
                here = filled[(at - start) // cell]
                here[part] = here.get(part, 0) + ns
    return tuple(_cell(owner[n], filled[n], cell) for n in range(width))


def _cell(owner: str, filled: dict[str, int], cell: int) -> Cell:
    if not filled:
        return (owner, EIGHTHS) if owner else _EMPTY
    part = max(filled, key=filled.__getitem__)
    if owner:
        return (part if 2 * filled[part] > cell else owner, EIGHTHS)
    ns = sum(filled.values())
    return part, max(1, min(EIGHTHS, round(EIGHTHS * ns / cell))) if ns else 1


def _account(of: _Drawn, at: int, cell: int, begin: int) -> Account | None:
    inside = [one for one in of.row.whole if one.start < at + cell and max(one.end, one.start + 1) > at]
    if inside:
        best = max(inside, key=lambda one: (min(one.end, at + cell) - max(one.start, at), one.start - one.end))
        text, place, blame = of.tell(best)
        return Account(text, (best.start - begin) / 1e9, (best.end - best.start) / 1e9, place, blame, len(inside))
    summed: dict[str, list[int]] = {}
    for kind, cells in of.row.near(of.grain, at, at + cell):
        for number, (ns, count) in cells:
            if at <= number * of.grain < at + cell:
                sums = summed.setdefault(of.part(kind), [0, 0])
                sums[0] += ns
                sums[1] += count
    if not summed:
        return None
    parts = tuple(sorted(((part, ns / 1e9) for part, (ns, _) in summed.items()), key=lambda one: -one[1]))
    count = sum(number for _, number in summed.values())
    text = f"{count:,} short stretches, too many to be kept one by one"
    return Account(text, (at - begin) / 1e9, sum(ns for _, ns in parts), NOWHERE, parts, count)
