"""Counters and times of a recording under PyTorch/XLA's names (``torch_xla.debug.metrics``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from xlaprof.analysis.sums import add_counts

from .totals import Totals

_Number = TypeVar("_Number", int, float)


def counts(totals: Totals) -> dict[str, int]:
    """Numbers of events: the recording's own counters, else the events in the log."""
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
        add_counts(counted, {totals.names.text(op): tally.count})
    counters, before = totals.counters, totals.baseline
    _count_from(counted, counters.counts if counters else {}, before.counts if before else {}, totals.merged_counts)
    return counted


def seconds(totals: Totals) -> dict[str, float]:
    """Seconds of the timed counters."""
    timed = {
        "CompileTime": totals.compiled.ns / 1e9,
        "ExecuteTime": totals.executed.ns / 1e9,
        "TransferFromDeviceTime": totals.read.ns / 1e9,
        "TransferToDeviceTime": totals.uploads.ns / 1e9,
    }
    counters, before = totals.counters, totals.baseline
    _count_from(timed, counters.seconds if counters else {}, before.seconds if before else {}, totals.merged_seconds)
    return timed


def _count_from(
    mine: dict[str, _Number], recorded: Mapping[str, _Number], before: Mapping[str, _Number], merged: dict[str, _Number]
) -> None:
    """The recording's own counters win, less what they were ``before``; merged recordings are added."""
    mine |= recorded
    for name, number in before.items() if recorded else ():
        mine[name] = mine.get(name, number) - number
    add_counts(mine, merged)
