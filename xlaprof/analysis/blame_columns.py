"""Idle gaps blamed all at once: what :meth:`~xlaprof.analysis.idle.IdleBlame.blame` does one by one, for long runs.

Of gaps in which nobody looked at the host, which are most. The result is the same to the last nanosecond.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xlaprof.analysis.columns import Column, Cuts, blank, column, cut, sums, table
from xlaprof.analysis.device import Quiet
from xlaprof.analysis.host import COMPILE, OTHER, SCOPE, TRACING, Segment
from xlaprof.analysis.idle import CAUSES, LONG, LONGEST, Cause, IdleBlame, Step, Stretch

_TRACING, _OTHER = range(2)  # codes that are always there


class _Parts(NamedTuple):
    """ns of each gap by cause; in the order of the gaps, and of each in that in which its causes were met."""

    gap: Column
    code: Column
    ns: Column


def blame(
    blamed: IdleBlame,
    gaps: Sequence[Quiet],
    segments: Sequence[Segment],
    segment_table: Column,
    holes: Sequence[Stretch],
    traced: Sequence[tuple[int, int, int]],
    steps: Sequence[Step],
) -> list[tuple[int, int, int]]:
    """Like ``blamed.blame``; returns what is left of ``traced``.

    Raises :class:`OverflowError`, and has done nothing, where it would not be the same.
    """
    start, end = table(gaps, 2)
    begins, ends, cause, _ = segment_table
    hole_begins, hole_ends, _, _ = table(holes, 4)
    stretches = table(traced, 3)
    # the step that a gap began in, or the next
    following = np.searchsorted(np.maximum.accumulate(column([step[1] for step in steps])), start, "right")

    codes: dict[Cause, int] = {TRACING: _TRACING, OTHER: _OTHER}
    different, nth = np.unique(cause, return_inverse=True)
    code_of = column([codes.setdefault(one, len(codes)) for one in different.tolist()])[nth]
    hole_code = column([codes.setdefault((before, after), len(codes)) for _, _, before, after in holes])
    if len(blamed.causes) + len(codes) > CAUSES:
        raise OverflowError("more causes than are kept apart")

    told = cut(start, end, begins, ends)
    quiet = blank(start, end, told)
    hollow = cut(quiet.start, quiet.end, hole_begins, hole_ends)
    rest = blank(quiet.start, quiet.end, hollow)
    steady = end - start >= LONG
    steady[told.outer[cause[told.inner] == COMPILE]] = False
    scopes = told.where(cause[told.inner] >= SCOPE)
    explains = _explains(scopes, end - start)
    those = np.isin(scopes.outer, scopes.outer[explains])
    scopes, explains = scopes.where(those), explains[those]
    of_rest, of_scopes, left = _use(rest._replace(outer=quiet.outer[rest.outer]), scopes, stretches)
    tracing = sums(of_rest, quiet.outer[rest.outer], len(start))
    other = sums(rest.ns, quiet.outer[rest.outer], len(start)) - tracing
    traces, others = np.flatnonzero(tracing), np.flatnonzero(other)
    parts = _sum_up(
        [told.outer, quiet.outer[hollow.outer], traces, others],
        [code_of[told.inner], hole_code[hollow.inner], np.full(len(traces), _TRACING), np.full(len(others), _OTHER)],
        [told.ns, hollow.ns, tracing[traces], other[others]],
    )

    causes = list(codes)
    ordinals = column([*(step[3] for step in steps), -1])
    _count(blamed, causes, parts, steady, ordinals[following])
    _record(
        blamed, causes, scopes.outer, code_of[scopes.inner], scopes.ns, np.where(steady[scopes.outer], of_scopes, 0)
    )

    # What depends on the order of the gaps: few are among the longest, and few holes are kept of a scope.
    shown = scopes.where(explains | (steady[scopes.outer] & (scopes.ns >= LONG)))
    lying = cut(shown.start, shown.end, hole_begins, hole_ends)
    places = _rows(shown.outer[lying.outer], cause[shown.inner[lying.outer]], lying.inner, lying.ns)
    place = next(places, None)
    for gap in [*np.flatnonzero(end - start > _shortest(blamed)).tolist(), len(gaps)]:
        while place is not None and place[0] <= gap:
            _, scope, hole, ns = place
            blamed.causes[scope].lie_in((holes[hole][2], holes[hole][3]), ns)
            place = next(places, None)
        if gap < len(gaps) and gaps[gap][1] - gaps[gap][0] > _shortest(blamed):
            met = slice(*np.searchsorted(parts.gap, (gap, gap + 1)).tolist())
            seen = slice(*np.searchsorted(told.outer, (gap, gap + 1)).tolist())
            inside = [
                (since, until, segments[n][2], segments[n][3])
                for n, since, until in _rows(told.inner[seen], told.start[seen], told.end[seen])
            ]
            spent = {causes[code]: ns for code, ns in _rows(parts.code[met], parts.ns[met])}
            step = int(following[gap])
            in_step = step < len(steps) and steps[step][0] <= gaps[gap][0]
            blamed._remember(*gaps[gap], spent, inside, steps[step][2] if in_step else -1)
    return list(zip(stretches[0].tolist(), stretches[1].tolist(), left.tolist(), strict=True))


def _rows(*several: Column) -> Iterator[tuple[int, ...]]:
    return zip(*(each.tolist() for each in several), strict=True)


def _shortest(blamed: IdleBlame) -> int:
    """Longer gaps are remembered."""
    return blamed.longest[0][0] if len(blamed.longest) >= LONGEST else -1


def _explains(scopes: Cuts, lengths: Column) -> NDArray[np.bool_]:
    """Of each gap the longest stretch of a scope, where it is a good part of the gap."""
    found = np.zeros(len(scopes.outer), bool)
    order = np.lexsort((scopes.start, -scopes.ns, scopes.outer))
    order = order[(scopes.ns > lengths[scopes.outer] // 8)[order]]
    _, first = np.unique(scopes.outer[order], return_index=True)
    found[order[first]] = True
    return found


def _record(
    blamed: IdleBlame, causes: Sequence[Cause], gap: Column, code: Column, ns: Column, recorded: Column
) -> None:
    """Operations were recorded in scopes: count it where the scope took long in the gap."""
    _, which = np.unique(gap * len(causes) + code, return_inverse=True)
    took = np.zeros(len(ns), np.int64)
    np.add.at(took, which, ns)
    total = np.zeros(len(causes), np.int64)
    np.add.at(total, code, np.where(took[which] >= LONG, recorded, 0))
    for one in np.flatnonzero(total).tolist():
        blamed.causes[causes[one]].recorded += int(total[one])


def _use(rest: Cuts, scopes: Cuts, stretches: Column) -> tuple[Column, Column, Column]:
    """Take tracing time gap by gap, first for the ``rest``: ns of each, of each of the ``scopes``, and what is left."""
    begins, ends, left = stretches
    gap = np.concatenate((rest.outer, scopes.outer))
    second = np.arange(len(gap)) >= len(rest.outer)
    start, end = np.concatenate((rest.start, scopes.start)), np.concatenate((rest.end, scopes.end))
    order = np.lexsort((start, second, gap))
    uses = cut(start[order], end[order], begins, ends)
    turn = np.argsort(uses.inner, kind="stable")
    wanted, stretch = uses.ns[turn], uses.inner[turn]
    total = np.cumsum(wanted)
    before = np.searchsorted(stretch, stretch)  # where the turns at this stretch begin
    total -= (total - wanted)[before]
    had = left[stretch]
    taken = np.minimum(total, had) - np.minimum(total - wanted, had)
    took = np.empty_like(taken)
    took[turn] = taken
    used = np.empty_like(start)
    used[order] = sums(took, uses.outer, len(order))
    return used[: len(rest.outer)], used[len(rest.outer) :], left - sums(taken, stretch, len(left))


def _sum_up(gaps: list[Column], codes: list[Column], lengths: list[Column]) -> _Parts:
    gap, code, ns = np.concatenate(gaps), np.concatenate(codes), np.concatenate(lengths)
    order = np.lexsort((code, gap))  # stable: what was met first stays first
    gap, code = gap[order], code[order]
    new = np.ones(len(order), bool)
    new[1:] = (gap[1:] != gap[:-1]) | (code[1:] != code[:-1])
    first = np.flatnonzero(new)
    met = np.lexsort((order[first], gap[first]))
    return _Parts(gap[first][met], code[first][met], np.add.reduceat(ns[order], first)[met])


def _count(
    blamed: IdleBlame, causes: Sequence[Cause], parts: _Parts, steady: NDArray[np.bool_], ordinals: Column
) -> None:
    lasting = (parts.ns >= LONG) & steady[parts.gap]
    order = np.argsort(parts.code, kind="stable")
    codes, first = np.unique(parts.code[order], return_index=True)
    groups = dict(zip(codes.tolist(), np.split(order, first[1:]), strict=True))
    for code, where in sorted(groups.items(), key=lambda group: group[1][0]):  # as they were met
        tally = blamed._tally(causes[code])
        tally.add(parts.ns[where].tolist())
        where = where[lasting[where]]
        if len(where):
            tally.last(parts.ns[where].tolist(), ordinals[parts.gap[where]].tolist())
