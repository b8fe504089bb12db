"""``torch_xla.debug.metrics_saver``: the metrics report, appended to the file that ``XLA_METRICS_FILE`` names."""

from __future__ import annotations

import os

from xlaprof.runtime import metrics


def save_metrics(metrics_file: str | None = None) -> None:
    """Append the report to ``metrics_file``; each of several processes has its own file, ``FILE.RANK``."""
    path = metrics_file or os.environ.get("XLA_METRICS_FILE")
    if not path:
        return
    rank = os.environ.get("RANK") or os.environ.get("PJRT_LOCAL_PROCESS_RANK")
    with open(f"{path}.{rank}" if rank else path, "a") as file:
        file.write(f"[MetricsData; step={metrics.counter_value('MarkStep') or 0}]\n{metrics.metrics_report()}\n")
