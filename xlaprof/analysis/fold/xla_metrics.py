"""Counters of a run under PyTorch/XLA's names."""

from __future__ import annotations

from .totals import Totals


def counts(totals: Totals) -> dict[str, int]:
    """Numbers of events: what the recording counted itself, else what is in the log."""
    counted = {
        "CompileTime": totals.compiled.count,
        "ExecuteTime": totals.executed.count,
        "TransferFromDeviceTime": totals.read.count,
        "TransferToDeviceTime": totals.uploads.count,
        "UncachedCompile": totals.compiled.count,
        "CachedCompile": max(0, totals.executed.count - totals.compiled.count),
        "MarkStep": totals.barriers,
    }
    for (_, op), tally in totals.fallbacks.items():
        name = totals.names.text(op)
        counted[name] = counted.get(name, 0) + tally.count
    if totals.counters is not None:
        counted |= totals.counters.counts
        if totals.baseline is not None:
            for name, before in totals.baseline.counts.items():
                counted[name] = counted.get(name, before) - before
    for name, number in totals.merged_counts.items():
        counted[name] = counted.get(name, 0) + number
    return counted


def seconds(totals: Totals) -> dict[str, float]:
    """Seconds of the timed ones."""
    timed = {
        "CompileTime": totals.compiled.ns / 1e9,
        "ExecuteTime": totals.executed.ns / 1e9,
        "TransferFromDeviceTime": totals.read.ns / 1e9,
        "TransferToDeviceTime": totals.uploads.ns / 1e9,
    }
    if totals.counters is not None:
        timed |= totals.counters.seconds
        if totals.baseline is not None:
            for name, before in totals.baseline.seconds.items():
                timed[name] = timed.get(name, before) - before
    for name, number in totals.merged_seconds.items():
        timed[name] = timed.get(name, 0.0) + number
    return timed
