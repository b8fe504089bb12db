"""The cost of compiling, by program, and how much a second run could save."""

from __future__ import annotations

import math
from heapq import nlargest

from xlaprof.analysis.fold.fold import Fold
from xlaprof.analysis.fold.tallies import CompileRecord
from xlaprof.analysis.model import CompileStat, ProgramStat
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import LISTED


def smaller(share: float) -> float:
    """The share of a graph's compile time that remains if ``share`` of its operations do, and the rest repeats them.

    XLA compiles repeated operations faster each time. Measured on a CPU: 50 diffusion steps took 691 s to compile, one
    took 103 s, which is 0.15 for a fiftieth of the operations; 27 of 497 operations took 0.31 of the time, and 10 of
    415 took 0.20, which is more than this predicts.
    """
    return math.sqrt(share)


def going_on(run: Fold, compiler: str) -> tuple[int, str]:
    """ns of a compilation that has no end in the recording, and what to say of it; 0 where none of the compiler's does.

    A program that is killed while it compiles (a time limit, most often) leaves such a recording.
    """
    begun = run.lasting
    if begun is None or begun.compiler != compiler:
        return 0, ""
    phase = f" ({begun.phase})" * bool(begun.phase)
    return max(0, run.last - begun.t), f"one that had not ended yet, at {short(begun.place)}{phase}"


def compilation(run: Fold) -> CompileStat:
    """The compiles of a settled run. ``saved_s``: of those not from a cache, XLA's part; all where kept."""
    bill = run.compile_bill
    longest = nlargest(LISTED, run.compiles, key=lambda record: record.dur)
    return CompileStat(
        count=bill.count,
        total_s=bill.total / 1e9,
        lower_s=bill.lower / 1e9,
        backend_s=bill.backend / 1e9,
        cached=bill.cached,
        loaded_s=bill.loaded / 1e9,
        saved_s=bill.spared / 1e9,
        unkept=tuple(sorted(bill.unkept.items(), key=lambda why: (-why[1], why[0]))),
        once=sum(run.program_runs.get(record.program, 0) <= 1 for record in run.compiles),
        programs=tuple(program_stat(run, record) for record in longest),
    )


def program_stat(run: Fold, record: CompileRecord) -> ProgramStat:
    """One compiled program of the run."""
    return ProgramStat(
        program=record.program,
        ops=record.ops,
        inputs=record.inputs,
        outputs=record.outputs,
        trigger=record.trigger,
        compile_s=record.dur / 1e9,
        lower_s=record.lower / 1e9,
        backend_s=record.backend / 1e9,
        cached=record.cached,
        runs=run.program_runs.get(record.program, 0),
        busy_s=run.program_busy.get(record.program, 0) / 1e9,
        place=run.names.place(record.stack),
        needs_bytes=max(0, record.arguments + record.results + record.temporary - record.donated),
    )
