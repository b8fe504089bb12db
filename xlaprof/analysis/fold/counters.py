"""Counters of a run under PyTorch/XLA's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xlaprof.analysis.run import Run


def counts(run: Run) -> dict[str, int]:
    """Numbers of events: what the recording counted itself, else what is in the log."""
    counted = {
        "CompileTime": run.compiled[0],
        "ExecuteTime": run.executed[0],
        "TransferFromDeviceTime": run.read[0],
        "TransferToDeviceTime": run.uploads[0],
        "UncachedCompile": run.compiled[0],
        "CachedCompile": max(0, run.executed[0] - run.compiled[0]),
        "MarkStep": run.barriers,
    }
    for (_, op), tally in run.fallbacks.items():
        name = run.names.text(op)
        counted[name] = counted.get(name, 0) + tally.count
    if run.counters is not None:
        counted |= run.counters.counts
        if run.baseline is not None:
            for name, before in run.baseline.counts.items():
                counted[name] = counted.get(name, before) - before
    for name, number in run.merged_counts.items():
        counted[name] = counted.get(name, 0) + number
    return counted


def seconds(run: Run) -> dict[str, float]:
    """Seconds of the timed ones."""
    timed = {
        "CompileTime": run.compiled[1] / 1e9,
        "ExecuteTime": run.executed[1] / 1e9,
        "TransferFromDeviceTime": run.read[1] / 1e9,
        "TransferToDeviceTime": run.uploads[1] / 1e9,
    }
    if run.counters is not None:
        timed |= run.counters.seconds
        if run.baseline is not None:
            for name, before in run.baseline.seconds.items():
                timed[name] = timed.get(name, before) - before
    for name, number in run.merged_seconds.items():
        timed[name] = timed.get(name, 0.0) + number
    return timed
