"""Reads and executions of a batch counted at once: ``ReadsAndFallbacks`` in columns."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

import numpy as np

from xlaprof.analysis.fold.reads_and_fallbacks import PLACES, Read
from xlaprof.analysis.fold.totals import Totals
from xlaprof.analysis.principles import STOPS_NS
from xlaprof.analysis.sums import RECORDS
from xlaprof.analysis.timeline.columns.intervals import (
    MOST,
    Column,
    Flags,
    NotVectorizable,
    grouped,
    require,
    rows,
    up_to,
)
from xlaprof.columns.kinds import Kind, Kinds
from xlaprof.events import DeviceWait, Execute, Step, TransferFromDevice

from .batch import require_known
from .digests import DigestSums

_OPS = 32  # bits of the id of an operation, beside that of a stack


def check_runs(run: Totals, runs: Kind) -> None:
    """Raise :class:`NotVectorizable` for executions that are new, or out of order."""
    require_known(run.programs, runs, "program")
    require_known(run.executed_at, runs, "stack")
    ran = runs["end"] - runs["start"]
    require(bool((ran < MOST).all() and (np.diff(runs["end"]) >= 0).all()))
    for_reads = runs.flags("for_read")
    require_known(run.read_runs, runs.where(for_reads), "stack")
    require_known(run.given, runs.where(~for_reads), "stack")


def check_reads(run: Totals, reads: Kind) -> None:
    """Raise :class:`NotVectorizable` for reads that are new, or out of order."""
    if not len(reads):
        return
    new = [int(reads.at[those[0]]) for key, those in grouped(_keys(reads)) if _pair(key) not in run.reads]
    if new:
        raise NotVectorizable(min(new))
    held = max(map(len, (run.reads_since_step, run.reads_since_barrier, run.reads_since_execution)))
    require(held + len(reads) < RECORDS and len(run.vias) + len(reads) < PLACES)
    before = np.array([read.end for read in run.reads_since_execution] or [reads.end[0]], np.int64)
    require(not run.compiled_for_read and bool((np.diff(np.concatenate((before, reads.end))) >= 0).all()))


def _keys(reads: Kind) -> Column:
    return (reads["stack"] << _OPS) + reads["op"]


def _pair(key: int) -> tuple[int, int]:
    return key >> _OPS, key & (1 << _OPS) - 1


def add_rhythms(run: Totals, part: Kinds, ends: Kind, sums: DigestSums) -> None:
    """Count the steps with reads, recorded one by one or in digests."""
    reads = part[TransferFromDevice]
    at = {_pair(key): [reads.at[those]] for key, those in grouped(_keys(reads))}
    for key, one in sums.reads.items():
        at.setdefault(key, []).append(sums.digests.at[one.of])
        run.reads[key].rhythm.count += int(one.events.sum()) - len(one.of)
    for key, several in at.items():
        turns = np.searchsorted(ends.at, np.sort(np.concatenate(several)))
        run.reads[key].rhythm.at_all((run.steps_ended + turns).tolist())


def add_reads(run: Totals, part: Kinds, cuts: Column, numbers: Column) -> Column:
    """Count the reads of a part; returns the waits for the device.

    ``cuts``: positions of its barriers; ``numbers``: of the steps recorded in full, among those of their name.
    """
    reads, runs, steps = part[TransferFromDevice], part[Execute], part[Step]
    waits = _waits(run, reads, part[DeviceWait])
    if len(cuts):
        run.claim_for_loop()
    if len(steps):
        run.claim_for_step(int(steps["t"][0]), int(steps["name"][0]), int(numbers[0]))
    serial, left = _serial(run, reads, runs)
    if not len(reads):
        return waits
    start, dur, wait = reads["t"], reads["dur"], reads["wait"]
    run.read.add(len(reads), int(dur.sum()))
    given = up_to(run.busy_until, runs["t"] + runs["enqueue"] + runs["end"] - runs["start"])
    late = reads["late"] != 0
    stalled = ~late & ((wait > STOPS_NS) | (start < given[np.searchsorted(runs.at, reads.at)]))
    in_step = np.searchsorted(steps.at, reads.at)
    claimed = start >= np.append(steps["t"], np.iinfo(np.int64).max)[in_step]
    looped = np.searchsorted(cuts, reads.at) < len(cuts)
    for key, those in grouped(_keys(reads)):
        tally = run.reads[_pair(key)]
        took, waited, size = (int(column[those].sum()) for column in (dur, wait, reads["bytes"]))
        tally.add(
            len(those), took, int(dur[those].max()), waited, size, int(late[those].sum()), int(stalled[those].sum())
        )
        tally.looped += int(looped[those].sum())
        tally.serial += int(serial[those].sum())
        inside = in_step[those[claimed[those]]]
        if len(inside):
            first, last = ((int(steps["name"][one]), int(numbers[one])) for one in (inside[0], inside[-1]))
            tally.claim(len(inside), int(np.count_nonzero(np.diff(inside))) + (first != tally.last_step), last)
    named = reads.where(reads.flags("via"))
    run.vias.update(((stack, op), via) for stack, op, via in rows(named["stack"], named["op"], named["via"]))
    _hold(
        run,
        reads,
        stalled,
        (run.reads_since_step, in_step == len(steps)),
        (run.reads_since_barrier, ~looped),
        (run.reads_since_execution, left),
    )
    mine = np.flatnonzero(reads["tid"] == run.main_thread)
    if len(mine):
        run.last_transfer = int(reads.end[mine[-1]]), int(reads["stack"][mine[-1]])
    run.last = max(run.last, int(reads.end.max()))
    return waits


def _waits(run: Totals, reads: Kind, waits: Kind) -> Column:
    """Reads and waits in the order of the events: start, end, ns waited."""
    waits = waits.where(waits["tid"] == run.main_thread)
    order = np.argsort(np.concatenate((reads.at, waits.at)), kind="stable")
    columns = ((reads["t"], waits["t"]), (reads.end, waits.end), (reads["wait"], waits["dur"]))
    return np.stack([np.concatenate(each)[order] for each in columns])


def _serial(run: Totals, reads: Kind, runs: Kind) -> tuple[Column, Flags]:
    """ns that the device idled after each read; and the reads that no execution has followed yet."""
    starts, ends = runs["start"], runs["end"]
    before = up_to(run.last_execution_end, ends)  # each execution, and after the last
    waiting = run.reads_since_execution
    over = ends.tolist() if waiting else []
    first = 0  # execution that ended after the read; reads are in order
    while waiting and (first := max(first, bisect_right(over, waiting[0].end))) < len(over):
        read = waiting.popleft()
        if read.tally is not None:
            after = int(starts[first]) - max(read.end, int(before[first]))
            read.tally.serial += max(0, min(after, read.event.wait))
    nth = np.maximum(np.searchsorted(runs.at, reads.at), np.searchsorted(ends, reads.end, "right"))
    left = nth == len(runs)
    idle = np.append(starts, 0)[nth] - np.maximum(reads.end, before[nth])
    return np.where(left, 0, np.maximum(0, np.minimum(idle, reads["wait"]))), left


def _hold(run: Totals, reads: Kind, stalled: Flags, *where: tuple[deque[Read], Flags]) -> None:
    """Keep in each of these lists the reads that it still waits to classify."""
    held: dict[int, Read] = {}
    for pending, which in where:
        for n in np.flatnonzero(which).tolist():
            if n not in held:
                event = reads.event(n)
                held[n] = read = Read(run.reads[event.stack, event.op], event, int(reads.end[n]))
                read.stalled = int(stalled[n])
            pending.append(held[n])


def add_runs(run: Totals, part: Kinds) -> Column:
    """Count the executions of a part; returns enqueued, start, end, device and stack of the read of each."""
    runs = part[Execute]
    moment, start, end, stack = runs["t"], runs["start"], runs["end"], runs["stack"]
    for_reads = runs.flags("for_read")
    executions = np.stack((moment, start, end, runs["device"], np.where(for_reads, stack, 0)))
    if not len(runs):
        return executions
    ran = end - start
    calls = np.where(runs["program"] > 0, np.maximum(runs["calls"], 1), 1)  # as ``times_run`` has it
    run.executed.add(int(calls.sum()), int(ran.sum()))
    first = np.empty(len(runs), np.int64)
    for one, those in grouped(stack):
        there = run.executed_at[one]
        first[those] = there.count + np.cumsum(calls[those]) - calls[those] + 1
        there.add(int(calls[those].sum()), int(ran[those].sum()))
    for program, those in grouped(runs["program"]):
        times = calls[those]
        rhythm = run.add_runs(program, int(moment[those[-1]]), int(ran[those].sum()), int(times.sum()))
        if (times == 1).all() and (np.diff(first[those]) >= 0).all():  # one that runs at several lines goes back
            rhythm.at_all(first[those].tolist())
        else:
            for turn, count in zip(first[those].tolist(), times.tolist(), strict=True):
                rhythm.at_each(turn, count)
    for one, those in grouped(stack[for_reads]):
        run.read_runs[one] += int(ran[for_reads][those].sum())
    for one, those in grouped(stack[~for_reads]):
        run.given[one] += len(those)
    if not run.cuts.full:
        cutting = runs.where(~runs.flags("apart"))
        run.cuts.extend(rows(cutting["stack"], cutting["program"]))
    run.busy_until = max(run.busy_until, int((moment + runs["enqueue"] + ran).max()))
    run.last_execution_end = max(run.last_execution_end, int(end[-1]))
    run.cover(int(moment.min()), int(end[-1]))
    return executions
