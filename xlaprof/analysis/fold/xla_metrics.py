"""Counters and times of a recording under PyTorch/XLA's names (``torch_xla.debug.metrics``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from xlaprof.analysis.sums import add_counts
from xlaprof.events import Counters

from .totals import Totals

_Number = TypeVar("_Number", int, float)

_NONE = Counters(t=0, counts={}, seconds={})


def counts(totals: Totals) -> dict[str, int]:
    """Numbers of events: the recording's own counters, else the events in the log."""
    compiles, executions = totals.compile_bill.count, totals.executed.count
    counted = {
        "CompileTime": compiles,
        "ExecuteTime": executions,
        "TransferFromDeviceTime": totals.read.count,
        "TransferToDeviceTime": totals.uploads.count,
        "UncachedCompile": compiles,
        "CachedCompile": max(0, executions - compiles),
        "MarkStep": totals.barriers,
    }
    for (_, op), tally in totals.fallbacks.items():
        add_counts(counted, {totals.names.text(op): tally.count})
    return _counted(counted, (totals.counters or _NONE).counts, (totals.baseline or _NONE).counts)


def seconds(totals: Totals) -> dict[str, float]:
    """Seconds of the timed counters."""
    timed = {
        "CompileTime": totals.compile_bill.total / 1e9,
        "ExecuteTime": totals.executed.ns / 1e9,
        "TransferFromDeviceTime": totals.read.ns / 1e9,
        "TransferToDeviceTime": totals.uploads.ns / 1e9,
    }
    return _counted(timed, (totals.counters or _NONE).seconds, (totals.baseline or _NONE).seconds)


def _counted(
    mine: dict[str, _Number], recorded: Mapping[str, _Number], before: Mapping[str, _Number]
) -> dict[str, _Number]:
    """The recording's own counters win, less what they were ``before``."""
    mine |= recorded
    for name, number in before.items() if recorded else ():
        mine[name] = mine.get(name, number) - number
    return mine
