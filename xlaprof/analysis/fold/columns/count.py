"""The door of this folder: :func:`count` counts a batch of events at once, kind by kind, with numpy.

The totals are the same as if the events were counted one by one, to the bit. Steps of a long recording resemble each
other: the few events that are new, or out of order, are counted one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from xlaprof import events as ev
from xlaprof.analysis.fold.reads_and_fallbacks import AT_HAND
from xlaprof.analysis.fold.tallies import PauseTally
from xlaprof.analysis.fold.totals import AT_ONCE, PROGRAMS, Totals
from xlaprof.analysis.sums import RECORDS
from xlaprof.analysis.timeline import host
from xlaprof.analysis.timeline.columns.intervals import (
    FAR,
    Column,
    Flags,
    NotVectorizable,
    grouped,
    marked,
    require,
    rows,
    up_to,
)
from xlaprof.analysis.timeline.columns.settle import Fresh, settle, settle_held
from xlaprof.columns.kinds import ANYTIME, Columns, Kind, Kinds

from .batch import ends_of_steps, has, require_known, require_small, stretches
from .digests import DigestSums, add_digests, check_digests, digest_sums
from .reads import add_reads, add_rhythms, add_runs, check_reads, check_runs
from .uploads import add_uploads, check_uploads

Batch = Sequence[ev.AnyEvent | ev.Event]

_LEAST = 256  # events at once
_DEEPEST = 64  # nesting of scopes

#: Kinds painted on the host's timeline beside scopes: of the main thread only, except reads, collections and barriers.
_PAINTED = {
    ev.DataWait: host.DATA,
    ev.DeviceWait: host.TRANSFER,
    ev.Gc: host.GC,
    ev.TransferToDevice: host.UPLOAD,
    ev.TransferFromDevice: host.TRANSFER,
    ev.Barrier: host.DISPATCH,
}


def count(run: Totals, columns: Columns, begin: int, end: int, singly: Callable[[Batch], None]) -> None:
    """Count a part of a batch; ``singly`` counts the events that are new or out of order."""
    batch, codes = columns.batch, columns.codes[begin:end]
    run.window.at_once = settle_held
    for first, past, at_once in stretches(codes, _LEAST):
        few = _LEAST if at_once else past - first
        while first < past:
            if at_once and past - first >= _LEAST and (done := _count(run, columns, begin + first, begin + past)):
                first, few = first + done, _LEAST
            singly(batch[begin + first : begin + min(first + few, past)])  # new names and places are known afterwards
            first += few
            few *= 4


def _count(run: Totals, columns: Columns, first: int, past: int) -> int:
    """Count as many events as possible, and settle the window when it is due; returns the number of events."""
    codes, whole = columns.codes[first:past], columns.kinds
    if not run.in_stride:
        return 0
    if not run.executed.count and has(codes, ev.Look) and _executes(codes, whole, first, past):
        return 0  # looks before the first execution are kept apart
    done = first
    try:
        while done < past:
            settled = _until_settled(run, whole, done, past)
            until = past if settled is None else settled + 1
            part = {kind: some.between(done, until) for kind, some in whole.items()}
            try:
                require_small(part)
                sums, ends = digest_sums(part[ev.StepDigest]), ends_of_steps(part)
                _check(run, part, ends, sums)
            except NotVectorizable as found:
                if found.at is None or found.at - done < _LEAST:
                    raise
                past = found.at  # nothing before it is new
                continue
            fresh = _add(run, part, ends, sums)
            run.events += until - done
            done = until
            if settled is None:
                fresh.pour(run.window)
            else:
                if not settle(run.window, fresh):
                    run.window.settle()
                run.settled_every, run.settled_at = run.events - run.settled_at, run.events
    except NotVectorizable:
        pass
    return done - first


def _executes(codes: Column, whole: Kinds, first: int, past: int) -> bool:
    """Does anything run on the device in this part of a batch?"""
    return has(codes, ev.Execute) or bool(whole[ev.StepDigest].between(first, past)["executions"].any())


def _until_settled(run: Totals, whole: Kinds, done: int, past: int) -> int | None:
    """The event from ``done`` on at which the window is settled; None: at none of them."""
    window = run.window
    painted = np.zeros(past - done, np.int64)
    for kind, some in whole.items():
        if kind in _PAINTED or kind is ev.Scope:
            these = some.between(done, past)
            painted[these.at[_is_painted(run, kind, these)] - done] = 1
    held = len(window.host) + np.cumsum(painted)  # after each event
    moments = []
    steps, runs = (whole[kind].between(done, past) for kind in (ev.Step, ev.Execute))
    full = held[steps.at - done] + len(window.open_steps) + np.arange(1, len(steps) + 1) >= window.settle_when
    moments += steps.at[full][:1].tolist()
    require_known(window.devices, runs, "device")
    digests = whole[ev.StepDigest].between(done, past).at
    for device, timeline in window.devices.items():
        at = runs.at[runs["device"] == device]
        if device == 0 and len(digests):
            at = np.sort(np.concatenate((at, digests)))
        full = held[at - done] + len(timeline.pending) + np.arange(1, len(at) + 1) >= window.settle_when
        moments += at[full][:1].tolist()
    return min(moments, default=None)


def _is_painted(run: Totals, kind: type, some: Kind) -> Flags:
    """Which events of a kind are painted on the host's timeline."""
    if kind is ev.Barrier:
        return some["dur"] > 0
    if kind in (ev.Gc, ev.TransferFromDevice):
        return np.ones(len(some), np.bool_)
    mine: Flags = some["tid"] == run.main_thread
    return mine


def _painted(run: Totals, kind: type, part: Kinds) -> Kind:
    return part[kind].where(_is_painted(run, kind, part[kind]))


def _check(run: Totals, part: Kinds, steps: Kind, sums: DigestSums) -> None:
    """Raise :class:`NotVectorizable` where anything is new, or in an order that columns do not keep."""
    scopes, holes, barriers, window = part[ev.Scope], part[ev.Hole], part[ev.Barrier], run.window
    require(all(ns < FAR for inner in run.child_ns.values() for ns in inner))
    require(sum(ns for _, ns in window.tracing_since_step) < FAR)
    require_known(run.scopes, scopes, "name")
    require_known(run.child_ns, scopes, "tid")
    depths = scopes["depth"]
    require(not len(depths) or bool(depths.max() < _DEEPEST))
    require_known({name for name, tally in run.steps.items() if tally.firsts}, steps, "name")
    over = np.concatenate((np.full(1, run.steps_ended_at), steps.end))
    require(bool((steps["t"] >= over[:-1]).all()))  # no step lies in another
    check_digests(run, sums)
    require(bool(holes["dur"].all()) and len(run.recording) + 2 * len(holes) < PROGRAMS)
    require(window.has_room_for(2 * len(holes)))
    require_known(run.sites, barriers, "stack")
    for stack, those in grouped(barriers["stack"]):
        require(int(barriers["loops"][those].max()) <= run.sites[stack].loops)
    require(not len(barriers) or bool(run.last_barrier and window.last_barrier))
    require(len(run.barriers_since_step) + len(barriers) < RECORDS)
    require(len(run.pauses) + len(part[ev.Gc]) + len(part[ev.DataWait]) < RECORDS)
    check_runs(run, part[ev.Execute])
    check_reads(run, part[ev.TransferFromDevice])
    check_uploads(run, part[ev.TransferToDevice])


def _add(run: Totals, part: Kinds, ends: Kind, sums: DigestSums) -> Fresh:
    """Count a checked part; returns the intervals for the window to settle."""
    for kind in ANYTIME:
        if handle := run.handlers.get(kind):
            for event in part[kind].events():
                handle(event)
    steps, barriers, sent = part[ev.Step], part[ev.Barrier], part[ev.TransferToDevice]
    cuts = barriers.at[~barriers.flags("for_read")]
    numbers = np.empty(len(ends), np.int64)
    for name, those in grouped(ends["name"]):
        numbers[those] = run.steps[name].count + np.arange(1, len(those) + 1)
    numbers = numbers[np.searchsorted(ends.at, steps.at)]
    for live, turn in zip(part[ev.Live].events(), np.searchsorted(ends.at, part[ev.Live].at).tolist(), strict=True):
        run.alive.add(live, run.steps_ended + turn)
    waits = part[ev.DeviceWait].where(part[ev.DeviceWait]["tid"] == run.main_thread)
    for wait, turn in zip(waits.events(), np.searchsorted(ends.at, waits.at).tolist(), strict=True):
        run.jit.on_wait(wait, run.steps_ended + turn)
    run.recent_uploads.extend(map(sent.event, range(max(0, len(sent) - AT_HAND), len(sent))))
    run.uploads.add(len(sent), int(sent["dur"].sum()))
    add_uploads(run, sent, ends)
    if run.now[0] != "running" and len(steps) + len(part[ev.Execute]):
        first = min((some.at[0], int(some["t"][0])) for some in (steps, part[ev.Execute]) if len(some))
        run.now = ("running", first[1])
    painted = _paint(run, part, ends)
    holes = _add_holes(run, part)
    _add_scopes(run, part[ev.Scope], ends, sums)
    _add_pauses(run, part)
    add_rhythms(run, part, ends, sums)
    waited = add_reads(run, part, cuts, numbers)
    digests = add_digests(run, sums, ends)
    runs = add_runs(run, part)
    recorded, traced = _add_barriers(run, part, cuts)
    unread = part[ev.Execute].at[~part[ev.Execute].flags("for_read")]
    closed = _add_steps(run, part, ends, np.sort(np.concatenate((cuts, unread))))
    return Fresh(painted, runs, holes, waited, recorded, traced, closed, digests)


def _paint(run: Totals, part: Kinds, ends: Kind) -> Column:
    """Intervals to paint on the host's timeline, in the order of the events."""
    scopes = _painted(run, ev.Scope, part)
    floor = up_to(run.window.steps_end, ends.end)[np.searchsorted(ends.at, scopes.at)]
    nowhere = np.zeros(len(scopes), np.int64)
    painted = [[scopes.at, np.maximum(scopes["t"], floor), scopes.end, host.SCOPE + scopes["name"], nowhere]]
    for kind, cause in _PAINTED.items():
        some = _painted(run, kind, part)
        painted.append([some.at, some["t"], some.end, np.full(len(some), cause), some["stack"]])
    at, *columns = (np.concatenate(column) for column in zip(*painted, strict=True))
    order = np.argsort(at, kind="stable")
    return np.stack(columns)[:, order]


def _add_holes(run: Totals, part: Kinds) -> Column:
    holes, reads = part[ev.Hole], part[ev.TransferFromDevice]
    holes, reads = holes.where(holes["tid"] == run.main_thread), reads.where(reads["tid"] == run.main_thread)
    run.recording.update(holes["before"].tolist(), holes["after"].tolist())
    start, end, before = holes["t"], holes.end, holes["before"]
    nth = np.searchsorted(reads.at, holes.at)
    known = np.append(run.last_transfer[0], reads.end)[nth]
    place = np.append(run.last_transfer[1], reads["stack"])[nth]
    nearer = (place != 0) & (start - AT_ONCE < known) & (known < end)  # the read's line is nearer to the end
    parted = nearer & (known > start)
    since, until = np.stack((start, np.where(parted, known, start))), np.stack((known, end))
    first, second = np.stack((before, np.where(nearer, place, before))), np.stack((place, holes["after"]))
    there = np.stack((parted, np.ones(len(holes), np.bool_))).T
    spans = np.stack([column.T[there] for column in (since, until, first, second)])
    held = run.window.holes
    spans[0] = np.maximum(spans[0], up_to(held[-1][1] if held else -FAR, spans[1])[:-1])
    return spans[:, spans[1] > spans[0]]


def _add_scopes(run: Totals, scopes: Kind, ends: Kind, sums: DigestSums) -> None:
    own = np.empty(len(scopes), np.int64)
    for tid, those in grouped(scopes["tid"]):
        own[those] = _own(run.child_ns[tid], scopes["depth"][those], scopes["dur"][those])
    known = bool(scopes["stack"].any())
    for name, those in grouped(scopes["name"]):
        tally = run.scopes[name]
        tally.total.append_words(scopes["dur"][those].tobytes())
        tally.own += int(np.maximum(own[those], 0).sum())
        if known and not tally.stack:
            tally.stack = next(filter(None, scopes["stack"][those].tolist()), 0)
        tally.errors += int(scopes["failed"][those].sum())
    run.last = max(run.last, int(scopes.end.max(initial=0)))
    ended = np.searchsorted(ends.at, scopes.at)  # steps, when each scope was left
    inside = scopes["t"] >= np.append(run.steps_ended_at, ends.end)[ended]
    ordinals = {name: ended[those][inside[those]] for name, those in grouped(scopes["name"])}
    for name, found in sums.scopes.items():
        digests = np.searchsorted(ends.at, sums.digests.at[found.of])
        ordinals[name] = np.append(ordinals[name], digests) if name in ordinals else digests
    for name, some in ordinals.items():
        run.scopes[name].add_steps((run.steps_ended + marked(some, len(ends) + 1)).tolist())


def _own(inner: list[int], depth: Column, dur: Column) -> Column:
    """ns of each scope of a thread without the scopes in it. ``inner``: ns by depth not yet claimed by a parent."""
    deepest = int(depth.max())
    inner.extend([0] * (deepest + 2 - len(inner)))
    own = dur.copy()
    for level in range(len(inner) - 1):
        inside = np.cumsum(np.where(depth == level + 1, dur, 0))
        here = np.flatnonzero(depth == level)
        had = np.concatenate((np.full(1, -inner[level + 1]), inside[here]))
        own[here] -= np.diff(had)
        inner[level + 1] = int(inside[-1] - had[-1])
    return own


def _add_pauses(run: Totals, part: Kinds) -> None:
    found = []
    for kind, cause in ((ev.Gc, host.GC), (ev.DataWait, host.DATA)):
        pauses = _painted(run, kind, part)
        for stack, those in grouped(pauses["stack"]):
            ns = pauses["dur"][those]
            found.append((int(pauses.at[those[0]]), stack, cause, (len(ns), int(ns.sum()), int(ns.max()))))
    for _, stack, cause, numbers in sorted(found):  # in the order in which they came first
        run.add_pause(stack, cause, PauseTally(*numbers))


def _add_barriers(run: Totals, part: Kinds, cuts: Column) -> tuple[Column, Column]:
    """Count barriers; returns the time of recording their graphs, and the stretches with tracing before them."""
    barriers, steps, window = part[ev.Barrier], part[ev.Step], run.window
    if len(steps):
        for site, moment in run.barriers_since_step:
            site.in_steps += moment >= int(steps["t"][0])
        run.barriers_since_step.clear()
    start, end, ops, tracing = barriers["t"], barriers.end, barriers["ops"], barriers["tracing"]
    run.barriers += len(barriers)
    last = up_to(window.last_barrier, end)
    window.last_barrier = int(last[-1])
    recorded = np.stack((last[:-1], start, end, tracing, ops))[:, tracing > 0]
    traced = np.stack((last[:-1], start, tracing))[:, (tracing > 0) & (start > last[:-1])]
    if not len(barriers):
        return recorded, traced

    ran = barriers["execution"] != 0
    in_step = np.searchsorted(steps.at, barriers.at)
    claimed = ran & (start >= np.append(steps["t"], FAR)[in_step])
    for stack, those in grouped(barriers["stack"]):
        site = run.sites[stack]
        site.trigger = barriers.event(those[-1]).trigger
        site.visits += len(those)
        site.in_steps += int(claimed[those].sum())
        those = those[ran[those]]
        site.dispatch.append_words(barriers["dur"][those].tobytes())
        site.ran(ops[those].tolist())
    for n in np.flatnonzero(ran & (in_step == len(steps))).tolist():
        run.barriers_since_step.append((run.sites[int(barriers["stack"][n])], int(start[n])))
    if len(cuts):
        run.last_barrier = int(end[np.searchsorted(barriers.at, cuts[-1])])
    run.cover(int(start.min()), int(end.max()))
    return recorded, traced


def _add_steps(run: Totals, part: Kinds, ends: Kind, cuts: Column) -> Column:
    """Count steps; returns those recorded in full. ``cuts``: positions of events that cut the graph."""
    barriers, steps, digests, window = part[ev.Barrier], part[ev.Step], part[ev.StepDigest], run.window
    in_step = np.searchsorted(steps.at, barriers.at)
    traced = barriers["tracing"] > 0
    unclaimed = rows(*(one[traced & (in_step == len(steps))] for one in (barriers["t"], barriers["tracing"])))
    tracing = np.zeros(len(steps) + 1, np.int64)
    if len(steps):
        traced &= barriers["t"] >= np.append(steps["t"], FAR)[in_step]
        np.add.at(tracing, in_step[traced], barriers["tracing"][traced])
        tracing[0] += sum(ns for moment, ns in window.tracing_since_step if moment >= int(steps["t"][0]))
        window.tracing_since_step.clear()
    window.tracing_since_step += unclaimed

    at_digests, at_steps = np.searchsorted(ends.at, digests.at), np.searchsorted(ends.at, steps.at)
    ordinals = window.next_ordinal + at_steps
    before = np.searchsorted(cuts, ends.at)
    cut = np.diff(before, prepend=-1 if run.graph_cut else 0) > 0
    cut[at_digests] |= digests["barriers"] + digests["executions"] > 0
    run.graph_cut = (run.graph_cut if not len(ends) else False) or bool(before[-1:].sum() < len(cuts))
    for name, those in grouped(ends["name"]):
        begun = ends["t"][those]
        for n in np.flatnonzero(begun <= run.torch_compile.latest).tolist():  # what was compiled in them came before
            run.torch_compile.on_step(name, run.steps[name].count + n + 1, int(begun[n]))
        run.steps[name].add_all(ends["num"][those].tolist(), ends["dur"][those].tolist())
        run.steps[name].end(cut[those].tolist())
    if len(ends):
        start, end = ends["t"], ends.end
        window.next_ordinal += len(ends)
        window.steps_end = max(window.steps_end, int(end.max()))
        run.steps_ended += len(ends)
        run.steps_ended_at = int(end[-1])
        run.step_num = int(ends["num"][-1])
        run.cover(int(start.min()), int(end.max()))
    first = np.zeros(len(steps), np.int64)
    return np.stack((steps["t"], steps.end, steps["num"], ordinals, steps["name"], first, tracing[:-1]))
