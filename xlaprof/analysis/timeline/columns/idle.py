"""Idle gaps blamed all at once, for long runs; ``IdleBlame.blame`` does it one by one.

Only for gaps without samples of the host: most of them. The result is the same to the last nanosecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xlaprof.analysis.timeline.host import COMPILE, OTHER, SCOPE, TRACING, Segment
from xlaprof.analysis.timeline.idle import CAUSES, LONG, Cause, IdleBlame

from .intervals import FAR, MOST, Column, Cuts, added_up, blank, column, cut, edges, grouped, rows, sums, unique

_TRACING, _OTHER = range(2)  # codes that are always there
_ID = 31  # bits of the id of a stack
_CELLS = 1 << 20  # of the table of gaps by cause
_MOST_AT_ONCE = 64  # of more gaps the segments are taken from the columns at once; of more holes, the sums


class _Parts(NamedTuple):
    """ns of each gap by cause: a row for each gap, a column for each code. ``order``: in which causes came."""

    ns: NDArray[np.int64]
    order: NDArray[np.int64]


def blame(
    blamed: IdleBlame,
    gaps: Column,
    segments: Column,
    holes: Column,
    traced: Column,
    steps: Column,
) -> Column:
    """Like ``blamed.blame``, with its arguments in columns; returns ``traced`` with the time that is left.

    Raises :class:`OverflowError`, without having counted anything, where the result would differ.
    """
    start, end = gaps
    if not len(start):
        return traced
    begins, ends, cause, _ = segments
    hole_begins, hole_ends = holes[:2]
    # the step in which a gap began, or the next one; and the step around its middle
    over = np.maximum.accumulate(steps[1])
    following, around = (np.searchsorted(over, moment, "right") for moment in (start, (start + end) // 2))

    kinds, nth = unique(cause)
    codes: dict[Cause, int] = {TRACING: _TRACING, OTHER: _OTHER}
    code_of = column([codes.setdefault(one, len(codes)) for one in kinds.tolist()])[nth]
    pairs, nth = unique(_paired(holes))
    pair_codes = [codes.setdefault((one >> _ID, one & (1 << _ID) - 1), len(codes)) for one in pairs.tolist()]
    hole_code = column(pair_codes)[nth]
    if len(blamed.causes) + len(codes) > CAUSES or len(codes) * len(start) > _CELLS:
        raise OverflowError("more causes than are kept apart")

    painted = cut(start, end, begins, ends)
    unpainted = blank(start, end, painted)
    in_holes = cut(unpainted.start, unpainted.end, hole_begins, hole_ends)
    rest = blank(unpainted.start, unpainted.end, in_holes)
    steady = end - start >= LONG
    steady[painted.outer[cause[painted.inner] == COMPILE]] = False
    scopes = painted.where(cause[painted.inner] >= SCOPE)
    explains = _explains(scopes, end - start)
    explained = np.zeros(len(start), bool)
    explained[scopes.outer[explains]] = True
    those = explained[scopes.outer]
    scopes, explains = scopes.where(those), explains[those]
    of_rest, of_scopes, left = _use(rest._replace(outer=unpainted.outer[rest.outer]), scopes, traced)
    tracing = sums(of_rest, unpainted.outer[rest.outer], len(start))
    other = sums(rest.ns, unpainted.outer[rest.outer], len(start)) - tracing
    traces, others = np.flatnonzero(tracing), np.flatnonzero(other)
    parts = _sum_up(
        (len(start), len(codes)),
        [painted.outer, unpainted.outer[in_holes.outer], traces, others],
        [
            code_of[painted.inner],
            hole_code[in_holes.inner],
            np.full(len(traces), _TRACING),
            np.full(len(others), _OTHER),
        ],
        [painted.ns, in_holes.ns, tracing[traces], other[others]],
    )

    causes = list(codes)
    ordinals = np.append(steps[3], -1)
    _count(blamed, causes, parts, steady, ordinals[around])
    scope_codes = code_of[scopes.inner]
    counted = steady[scopes.outer] & (parts.ns[scopes.outer, scope_codes] >= LONG)
    recorded = np.zeros(len(codes), np.int64)
    np.add.at(recorded, scope_codes[counted], of_scopes[counted])
    for code in np.flatnonzero(recorded).tolist():
        blamed.causes[causes[code]].recorded += int(recorded[code])

    # The longest gaps and the holes kept of a scope depend on the order of the gaps: one by one, they are few.
    shown = scopes.where(explains | (steady[scopes.outer] & (scopes.ns >= LONG)))
    lying = cut(shown.start, shown.end, hole_begins, hole_ends)
    of_gap = shown.outer[lying.outer]
    keys = code_of[shown.inner[lying.outer]] * len(codes) + hole_code[lying.inner]
    done = 0
    long = blamed.remembers(start, end - start) | (end - start >= MOST)
    chosen = np.flatnonzero(long)
    spent, inside = _spent(parts, chosen), _inside(painted, segments, chosen)
    past = np.searchsorted(of_gap, chosen, "right").tolist()
    begun_in = _number(steps, following[chosen], start[chosen])
    for number, (first, last, step) in enumerate(rows(start[chosen], end[chosen], begun_in)):
        if last - first > blamed.shortest:
            if past[number] > done:
                _add_holes(blamed, causes, keys[done : past[number]], lying.ns[done : past[number]])
                done = past[number]
            ns_by_cause = {causes[code]: ns for code, ns in spent[number]}
            blamed.remember(first, last, ns_by_cause, inside(number), step)
        elif blamed.sums:
            blamed.sum_up(first, last - first, {causes[code]: ns for code, ns in spent[number]})
    if blamed.sums and len(chosen) < len(long):
        blamed.sum_up_many(start[~long], (end - start)[~long], causes, _main(parts, ~long))
    _add_holes(blamed, causes, keys[done:], lying.ns[done:])
    unused: Column = np.stack((*traced[:2], left))
    return unused


def _number(steps: Column, nth: Column, moments: Column) -> Column:
    """The number of the step ``nth``, where it has begun at the moment; -1 where there is none."""
    numbers = np.append(steps[2], -1)[nth]
    numbers[np.append(steps[0], FAR)[nth] > moments] = -1
    return numbers


def _spent(parts: _Parts, chosen: Column) -> list[list[tuple[int, int]]]:
    """Code and ns of what each chosen gap was spent on, in the order in which it came."""
    gap, code = np.nonzero(parts.ns[chosen])
    turn = np.lexsort((parts.order[chosen[gap], code], gap))
    gap, code = gap[turn], code[turn]
    pairs = rows(code, parts.ns[chosen[gap], code])
    borders = np.searchsorted(gap, np.arange(len(chosen) + 1)).tolist()
    return [pairs[first:past] for first, past in pairwise(borders)]


def _main(parts: _Parts, which: NDArray[np.bool_]) -> Column:
    """The code of most of each of these gaps; of several the one that came first."""
    ns = parts.ns[which]
    main: Column = np.where(ns == ns.max(axis=1, keepdims=True), parts.order[which], FAR).argmin(axis=1)
    return main


def _inside(painted: Cuts, segments: Column, chosen: Column) -> Callable[[int], list[Segment]]:
    """The segments in each chosen gap, by its number; all at once where most gaps are chosen."""
    firsts, pasts = (np.searchsorted(painted.outer, gap).tolist() for gap in (chosen, chosen + 1))

    def some(first: int, past: int) -> list[Segment]:
        seen = slice(first, past)
        return rows(painted.start[seen], painted.end[seen], *segments[2:, painted.inner[seen]])

    if len(chosen) < _MOST_AT_ONCE:
        return lambda nth: some(firsts[nth], pasts[nth])
    every = some(0, len(painted.outer))
    return lambda nth: every[firsts[nth] : pasts[nth]]


def _paired(holes: Column) -> Column:
    """The two stacks of each hole as one number."""
    before, after = holes[2:]
    paired: Column = (before << _ID) + after
    return paired


def _add_holes(blamed: IdleBlame, causes: Sequence[Cause], keys: Column, lengths: Column) -> None:
    """Count the ns of each scope in each hole; ``keys`` holds both, by their codes."""
    few = len(keys) <= _MOST_AT_ONCE
    found = zip(keys.tolist(), lengths.tolist(), strict=True) if few else _summed(keys, lengths)
    for key, ns in found:  # in order: of many only the first are kept
        scope, hole = divmod(key, len(causes))
        place = causes[hole]
        assert isinstance(place, tuple)
        blamed.causes[causes[scope]].add_hole((place[0], place[1]), ns)


def _summed(keys: Column, numbers: Column) -> Iterable[tuple[int, int]]:
    return ((key, int(numbers[those].sum())) for key, those in grouped(keys))


def _explains(scopes: Cuts, lengths: Column) -> NDArray[np.bool_]:
    """Marks the longest stretch of a scope in each gap, where it is a good part of the gap."""
    ns, gap = scopes.ns, scopes.outer
    most = lengths // 8
    np.maximum.at(most, gap, ns)
    found = np.flatnonzero((ns == most[gap]) & (ns > lengths[gap] // 8))
    first = np.ones(len(found), bool)
    first[1:] = gap[found[1:]] != gap[found[:-1]]
    explains = np.zeros(len(gap), bool)
    explains[found[first]] = True
    return explains


def _use(rest: Cuts, scopes: Cuts, stretches: Column) -> tuple[Column, Column, Column]:
    """Take tracing time gap by gap, first for ``rest``: ns of each of ``rest`` and of ``scopes``, and the ns left."""
    begins, ends, left = stretches
    gaps = 1 + max(rest.outer.max(initial=0), scopes.outer.max(initial=0))
    of_rest = np.arange(len(rest.outer)) + edges(scopes.outer, gaps)[rest.outer]
    of_scopes = np.arange(len(scopes.outer)) + edges(rest.outer, gaps)[scopes.outer + 1]
    start, end = (np.empty(len(of_rest) + len(of_scopes), np.int64) for _ in range(2))
    start[of_rest], start[of_scopes] = rest.start, scopes.start
    end[of_rest], end[of_scopes] = rest.end, scopes.end
    uses = cut(start, end, begins, ends)
    turn = np.argsort(uses.inner, kind="stable")
    overlap, stretch = uses.ns[turn], uses.inner[turn]
    total = np.cumsum(overlap)
    total -= (total - overlap)[edges(stretch, len(left))[stretch]]  # without those at earlier stretches
    available = left[stretch]
    in_turn = np.minimum(total, available) - np.minimum(total - overlap, available)
    in_order = np.empty_like(in_turn)
    in_order[turn] = in_turn
    used = sums(in_order, uses.outer, len(start))
    return used[of_rest], used[of_scopes], left - sums(in_turn, stretch, len(left))


def _sum_up(shape: tuple[int, int], gaps: list[Column], codes: list[Column], lengths: list[Column]) -> _Parts:
    """Add up ns by gap and cause; the lists are in the order of the causes of a gap."""
    gap, code = np.concatenate(gaps), np.concatenate(codes)
    ns, order = added_up(shape, gap, code, np.concatenate(lengths)), np.zeros(shape, np.int64)
    back = np.arange(len(gap))[::-1].copy()
    order[gap[back], code[back]] = back  # backwards: the first one stays
    return _Parts(ns, order)


def _count(
    blamed: IdleBlame, causes: Sequence[Cause], parts: _Parts, steady: NDArray[np.bool_], ordinals: Column
) -> None:
    where = [np.flatnonzero(ns) for ns in parts.ns.T]
    there = [(int(gaps[0]), int(parts.order[gaps[0], code]), code) for code, gaps in enumerate(where) if len(gaps)]
    for _, _, code in sorted(there):  # in order
        gaps = where[code]
        ns = parts.ns[gaps, code]
        tally = blamed.tally(causes[code])
        tally.add(len(ns), int(ns.sum()), int(ns.max()))
        lasting = steady[gaps] & (ns >= LONG)
        if lasting.any():
            long = ns[lasting]
            tally.add_habit(int(long.sum()), int(long.max()), ordinals[gaps[lasting]].tolist())
