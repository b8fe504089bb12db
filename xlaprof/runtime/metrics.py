"""Counters and timed metrics of the runtime, under PyTorch/XLA's names.

Timed metrics: ``CompileTime``, ``ExecuteTime``, ``TransferToDeviceTime``, ``TransferFromDeviceTime``. Counters:
``CachedCompile``, ``UncachedCompile``, ``MarkStep``, and ``aten::op`` for each operation that ran on the CPU.
The functions and their meaning are those of ``torch_xla.debug.metrics``.
"""

from __future__ import annotations

import threading
import time
from collections import deque

#: how many samples of a metric are kept for its percentiles (PyTorch/XLA keeps as many)
SAMPLES = 1024
_PERCENTILES = (0.01, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99)


class Metric:
    """One timed metric: exact count and total, and the latest samples ``(monotonic s, ns)``."""

    __slots__ = ("count", "samples", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES)

    def add(self, ns: int) -> None:
        self.total += ns
        self.samples.append((time.monotonic(), ns))


_counters: dict[str, int] = {}
_metrics: dict[str, Metric] = {}
_lock = threading.Lock()


def count(name: str, by: int = 1) -> None:
    """Add ``by`` to the counter ``name``."""
    with _lock:
        _counters[name] = _counters.get(name, 0) + by


def sample(name: str, ns: int) -> None:
    """Add one sample of ``ns`` nanoseconds to the timed metric ``name``."""
    begin(name)
    end(name, ns)


def begin(name: str) -> None:
    """Count a sample whose length is told by :func:`end` later: an execution counts when it is handed over."""
    with _lock:
        metric = _metrics.get(name)
        if metric is None:
            metric = _metrics.setdefault(name, Metric())
        metric.count += 1


def end(name: str, ns: int) -> None:
    """Tell the length of a sample counted by :func:`begin`."""
    with _lock:
        metric = _metrics.get(name)
        if metric is not None:  # None: cleared in between
            metric.add(ns)


def counter_names() -> list[str]:
    """Names of the counters that are not zero."""
    return sorted(_counters)


def counter_value(name: str) -> int | None:
    """The counter's value, ``None`` if nothing was counted under ``name``."""
    return _counters.get(name)


def metric_names() -> list[str]:
    """Names of the timed metrics that have samples."""
    return sorted(_metrics)


def metric_data(name: str) -> tuple[int, int, list[tuple[float, int]]] | None:
    """``(samples ever, total ns, latest samples)`` of the timed metric, each sample ``(monotonic s, ns)``."""
    metric = _metrics.get(name)
    return None if metric is None else (metric.count, metric.total, list(metric.samples))


def executed_fallback_ops() -> list[str]:
    """The operations that ran on the CPU, as ``aten::op``."""
    return [name for name in counter_names() if name.startswith("aten::")]


def clear_counters() -> None:
    """Forget the counters."""
    with _lock:
        _counters.clear()


def clear_metrics() -> None:
    """Forget the timed metrics."""
    with _lock:
        _metrics.clear()


def clear_all() -> None:
    """Forget counters and metrics."""
    clear_counters()
    clear_metrics()


def totals() -> tuple[dict[str, int], dict[str, float]]:
    """``(counts, seconds)``: counters and numbers of samples, and the timed metrics' sums."""
    with _lock:
        counts = dict(_counters)
        counts.update((name, metric.count) for name, metric in _metrics.items())
        return counts, {name: metric.total / 1e9 for name, metric in _metrics.items()}


def metrics_report() -> str:
    """The whole report as text, laid out as PyTorch/XLA lays it out."""
    return _report(metric_names(), counter_names())


def short_metrics_report(
    counter_names: list[str] | None = None,
    metric_names: list[str] | None = None,
) -> str:
    """The report for the named counters and metrics; by default those that matter most."""
    counters = counter_names if counter_names is not None else ["CachedCompile", "MarkStep", "UncachedCompile"]
    metrics = (
        metric_names
        if metric_names is not None
        else ["CompileTime", "ExecuteTime", "TransferFromDeviceTime", "TransferToDeviceTime"]
    )
    if counter_names is None:
        counters = counters + executed_fallback_ops()
    return _report([m for m in metrics if m in _metrics], [c for c in counters if c in _counters])


def _report(metrics: list[str], counters: list[str]) -> str:
    lines: list[str] = []
    for name in metrics:
        data = metric_data(name)
        if data is None:
            continue
        total_samples, total, samples = data
        lines += [f"Metric: {name}", f"  TotalSamples: {total_samples}", f"  Accumulator: {_duration(total)}"]
        if len(samples) > 1:
            elapsed = samples[-1][0] - samples[0][0]
            if elapsed > 0:
                rate = sum(ns for _, ns in samples) / 1e9 / elapsed
                lines += [f"  ValueRate: {_duration(int(rate * 1e9))} / second"]
                lines += [f"  Rate: {len(samples) / elapsed:.6g} / second"]
        ordered = sorted(ns for _, ns in samples)
        if not ordered:  # all still on their way
            continue
        shown = [f"{int(p * 100)}%={_duration(ordered[int(p * len(ordered))])}" for p in _PERCENTILES]
        lines.append(f"  Percentiles: {'; '.join(shown)}")
    for name in counters:
        lines += [f"Counter: {name}", f"  Value: {_counters.get(name, 0)}"]
    return "\n".join(lines) + "\n" if lines else ""


def _duration(ns: int) -> str:
    """``01m02s003ms004.500us``, as PyTorch/XLA writes durations: leading zero parts left out."""
    us, rest = divmod(ns, 1000)
    parts: list[str] = []
    for size, unit, width in (
        (86_400_000_000, "d", 2),
        (3_600_000_000, "h", 2),
        (60_000_000, "m", 2),
        (1_000_000, "s", 2),
        (1000, "ms", 3),
    ):
        amount, us = divmod(us, size)
        if amount or parts:
            parts.append(f"{amount:0{width}d}{unit}")
    return "".join(parts) + f"{us:03d}.{rest:03d}us"
