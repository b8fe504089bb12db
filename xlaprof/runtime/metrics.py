"""Counters and metrics of the runtime, under PyTorch/XLA's names.

The functions, their results and the text of the reports are those of ``torch_xla.debug.metrics``; docs/metrics.md lists
every counter. A metric is a series of samples, in nanoseconds unless :data:`_KINDS` says bytes or plain numbers.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable

#: how many samples of a metric are kept for its rates and percentiles
SAMPLES = int(os.environ.get("XLA_METRICS_SAMPLES", "1024"))
_PERCENTILES = sorted(
    float(p) for p in os.environ.get("XLA_METRICS_PERCENTILES", "0.01:0.05:0.1:0.2:0.5:0.8:0.9:0.95:0.99").split(":")
)

#: units of the metrics that are not ns
_KINDS = {
    "InboundData": "bytes",
    "OutboundData": "bytes",
    "InputOutputAliasCount": "value",
    "TensorsGraphSize": "value",
}

#: names that PyTorch/XLA's client counts, not its lazy tensors: the second half of a report
_OF_THE_CLIENT = frozenset(
    {
        "CompileTime", "CreateCompileHandles", "CreateDataHandles", "ExecuteTime", "InboundData", "MarkStep",
        "OutboundData", "TransferFromDeviceTime", "TransferToDeviceTime",
    }
)  # fmt: skip


class Metric:
    """One metric: exact count and total, and the latest samples ``(monotonic s, value)``."""

    __slots__ = ("count", "samples", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES)

    def add(self, value: int) -> None:
        self.total += value
        self.samples.append((time.monotonic(), value))


_counters: dict[str, int] = {}
_metrics: dict[str, Metric] = {}
_lock = threading.Lock()
#: called before counters are read, for those who count only then
_late: list[Callable[[], None]] = []


def count(name: str, times: int = 1) -> None:
    """Add ``times`` to the counter ``name``."""
    with _lock:
        _counters[name] = _counters.get(name, 0) + times


def before_reading(settle: Callable[[], None]) -> None:
    """Call ``settle``, which brings counters up to date, before they are read."""
    _late.append(settle)


def sample(name: str, value: int) -> None:
    """Add a sample to the metric ``name``, in its unit."""
    samples((name, value))


def samples(*pairs: tuple[str, int]) -> None:
    """Add one sample to each of several metrics."""
    with _lock:
        for name, value in pairs:
            found = metric(name)
            found.count += 1
            found.add(value)


def metric(name: str) -> Metric:
    """The metric ``name`` itself; eager operations add to it directly, which is faster than :func:`samples`."""
    found = _metrics.get(name)
    return _metrics.setdefault(name, Metric()) if found is None else found


def begin(name: str, times: int = 1) -> None:
    """Count samples before they end: an execution counts once handed over. :func:`end` adds the length, if it ends."""
    with _lock:
        metric(name).count += times


def end(name: str, ns: int) -> None:
    """Add the length of a sample counted by :func:`begin`."""
    with _lock:
        metric = _metrics.get(name)
        if metric is not None:  # None: cleared in between
            metric.add(ns)


def timed(name: str, ns: int) -> None:
    """Add the length of a sample that :func:`begin` counts later."""
    with _lock:
        metric(name).add(ns)


def _settle() -> None:
    for settle in _late:
        settle()


def counter_names() -> list[str]:
    """Names of the counters that are not zero."""
    _settle()
    return sorted(_counters)


def counter_value(name: str) -> int | None:
    """The counter's value, ``None`` if nothing was counted under ``name``."""
    _settle()
    return _counters.get(name)


def metric_names() -> list[str]:
    """Names of the metrics that have samples."""
    _settle()
    return sorted(name for name, metric in _metrics.items() if metric.count)


def metric_data(name: str) -> tuple[int, int, list[tuple[float, int]]] | None:
    """``(samples ever, their sum, latest samples)`` of the metric, each sample ``(monotonic s, value)``.

    Values are ns; of ``InboundData`` and ``OutboundData`` bytes, of ``TensorsGraphSize`` and ``InputOutputAliasCount``
    numbers. ``None`` if there are no samples.
    """
    _settle()
    metric = _metrics.get(name)
    return (metric.count, metric.total, list(metric.samples)) if metric is not None and metric.count else None


def executed_fallback_ops() -> list[str]:
    """The operators that ran on the CPU, ``aten::op`` or ``library::op``, and ``aten::_local_scalar_dense``."""
    return [name for name in sorted(_counters) if _is_fallback(name)]


def _is_fallback(name: str) -> bool:
    return "::" in name and not name.startswith("xla::")


def clear_counters() -> None:
    """Forget the counters."""
    _settle()
    with _lock:
        _counters.clear()


def clear_metrics() -> None:
    """Forget the metrics."""
    _settle()
    with _lock:
        _metrics.clear()


def clear_all() -> None:
    """Forget counters and metrics."""
    clear_counters()
    clear_metrics()


def totals() -> tuple[dict[str, int], dict[str, float]]:
    """``(counts, seconds)``: all counters and numbers of samples, and the sums of the timed metrics.

    Recorded operations (``xla::op``, ``LazyTracing``) are left out: a recording has them as tracing time.
    """
    with _lock:
        counts = {name: n for name, n in _counters.items() if not name.startswith("xla::")}
        done = {name: metric for name, metric in _metrics.items() if name != "LazyTracing"}
        counts.update((name, metric.count) for name, metric in done.items())
        return counts, {name: m.total / 1e9 for name, m in done.items() if name not in _KINDS}


def metrics_report() -> str:
    """The whole report as text: names that PyTorch/XLA's lazy tensors count, then those of its client."""
    metrics, counters = metric_names(), counter_names()
    return "".join(
        _report(
            [m for m in metrics if (m in _OF_THE_CLIENT) is half],
            [c for c in counters if (c in _OF_THE_CLIENT or _is_fallback(c)) is half],
        )
        for half in (False, True)
    )


def short_metrics_report(counter_names: list[str] | None = None, metric_names: list[str] | None = None) -> str:
    """The report of the named counters and metrics, and of all fallbacks; by default of those that matter most."""
    _settle()
    counters = counter_names or ["CachedCompile", "MarkStep", "DynamoSyncInputExecuteTime"]
    metrics = metric_names or [
        "CompileTime", "ExecuteTime", "ExecuteReplicatedTime", "TransferToDeviceTime", "TransferFromDeviceTime"
    ]  # fmt: skip
    fallbacks = [name for name in executed_fallback_ops() if name not in counters]
    return _report(metrics, [c for c in counters if c in _counters] + fallbacks)


def _report(metrics: list[str], counters: list[str]) -> str:
    lines: list[str] = []
    for name in metrics:
        data = metric_data(name)
        if data is None:
            continue
        total_samples, total, latest = data
        show = _SHOWN[_KINDS.get(name, "time")]
        lines += [f"Metric: {name}", f"  TotalSamples: {total_samples}", f"  Accumulator: {show(total)}"]
        elapsed = latest[-1][0] - latest[0][0] if latest else 0.0
        if elapsed > 0:
            lines += [f"  ValueRate: {show(sum(v for _, v in latest) / elapsed)} / second"]
            lines += [f"  Rate: {len(latest) / elapsed:.6g} / second"]
        ordered = sorted(v for _, v in latest)
        if not ordered:  # all still on their way
            continue
        shown = [f"{p * 100:.6g}%={show(ordered[int(p * len(ordered))])}" for p in _PERCENTILES]
        lines.append(f"  Percentiles: {'; '.join(shown)}")
    for name in counters:
        lines += [f"Counter: {name}", f"  Value: {_counters.get(name, 0)}"]
    return "\n".join(lines) + "\n" if lines else ""


def _duration(ns: float) -> str:
    """``01m02s003ms004.500us``, as PyTorch/XLA writes durations: leading zero parts left out."""
    us, rest = divmod(int(ns), 1000)
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


def _bytes(size: float) -> str:
    for suffix in ("B", "KB", "MB", "GB", "TB"):
        if size < 1024:
            return f"{size:.2f}{suffix}"
        size /= 1024
    return f"{size:.2f}PB"


_SHOWN: dict[str, Callable[[float], str]] = {"time": _duration, "bytes": _bytes, "value": lambda v: f"{v:.2f}"}
