"""What was alive on the device, and when: live tensors as they were read at barriers, and the programs held by then."""

from __future__ import annotations

from bisect import bisect_right

from xlaprof.analysis.fold.alive import Reading
from xlaprof.analysis.fold.fold import Fold
from xlaprof.analysis.model import HeldStat, KeptStat, MemoryReading, MemoryStat
from xlaprof.analysis.principles import LISTED


def memory(run: Fold) -> MemoryStat:
    """The section on memory of a settled run."""
    alive, kept = run.alive, run.alive.kept
    last, most = alive.last, alive.most
    if last is None or most is None:
        return MemoryStat()
    course = list(alive.readings.values)
    for one in (most, last):
        if one not in course and course[0].t <= one.t <= last.t:  # the clock of another rank has no place among these
            course.append(one)
    course.sort(key=lambda one: one.t)
    made = sorted(record.t + record.dur for record in run.compiles)
    gone = sorted(alive.evicted)

    def read(one: Reading) -> MemoryReading:
        programs = bisect_right(made, one.t) - bisect_right(gone, one.t)
        at_s = max(0, one.t - (run.begin or 0)) / 1e9
        return MemoryReading(at_s, one.tensors, one.bytes, max(0, programs))

    return MemoryStat(
        readings=alive.readings.seen,
        last=read(last),
        most=read(most),
        course=tuple(map(read, course)),
        held=tuple(HeldStat(run.names.place(stack), tensors, size) for stack, tensors, size in alive.held[:LISTED]),
        kept=KeptStat(kept.path, kept.kind, kept.length, tuple(map(run.names.place, kept.puts))) if kept else None,
    )
