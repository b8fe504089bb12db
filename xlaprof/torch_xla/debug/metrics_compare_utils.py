"""``torch_xla.debug.metrics_compare_utils``: metrics reports as numbers, and what differs between them."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

_METRIC = re.compile(r"Metric: (\S+)\s+TotalSamples: (\d+)\s+Accumulator: (\S+)")
_COUNTER = re.compile(r"Counter: (\S+)\s+Value: (\d+)")
#: parts of a duration, in seconds, and of a size, in decimal megabytes
_DURATION = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_SIZE = {"PB": 1e9, "TB": 1e6, "GB": 1e3, "MB": 1.0, "KB": 1e-3, "B": 1e-6}

Points = Mapping[str, Sequence[float | None]]


def _number(text: str) -> tuple[float, str]:
    """The value in seconds or megabytes, and ``"sec"``, ``"mb"`` or ``""``. Raises ``ValueError``."""
    try:
        return float(text), ""
    except ValueError:
        pass
    for units, name in ((_DURATION, "sec"), (_SIZE, "mb")):
        one = rf"(\d+(?:\.\d+)?)({'|'.join(sorted(units, key=len, reverse=True))})"
        if re.fullmatch(rf"(?:{one})+", text):
            return sum(float(value) * units[unit] for value, unit in re.findall(one, text)), name
    raise ValueError(f"Unknown accumulator_string format: {text}")


def parse_metrics_report(report: str) -> dict[str, float]:
    """``{"CompileTime__TotalSamples": 2, "CompileTime__Accumulator_sec": 0.3, "MarkStep__Value": 7}``."""
    points: dict[str, float] = {}
    for name, samples, accumulator in _METRIC.findall(report):
        value, unit = _number(accumulator)
        points[f"{name}__Accumulator{'_' if unit else ''}{unit}"] = value
        points[f"{name}__TotalSamples"] = int(samples)
    for name, value in _COUNTER.findall(report):
        points[f"{name}__Value"] = int(value)
    return points


def get_data_points_from_metrics_reports(metrics_reports: Sequence[str]) -> dict[str, list[float | None]]:
    """Each number of the reports with its value in each of them, ``None`` where it is missing."""
    points: dict[str, list[float | None]] = defaultdict(lambda: [None] * len(metrics_reports))
    for number, report in enumerate(metrics_reports):
        for name, value in parse_metrics_report(report).items():
            points[name][number] = value
    return points


def compare_metrics(data_points: Points, metrics_report: str, config: Mapping[str, float] | None = None) -> str:
    """The numbers of ``metrics_report`` that differ from those of earlier reports, one line each.

    ``config`` has the tolerated number of standard deviations: ``base_tolerance``, or ``{name}_tolerance`` for one.
    """
    config = config or {"base_tolerance": 2.0}
    lines = []
    for name, value in parse_metrics_report(metrics_report).items():
        before = [v for v in data_points.get(name, ()) if v is not None]
        if not before:
            if name.startswith("aten::"):
                lines.append(f"Found new aten counter: {name}: {value}\n")
            continue
        tolerance = config.get(f"{name}_tolerance", config["base_tolerance"])
        mean, spread = sum(before) / len(before), statistics.pstdev(before) * tolerance
        if not mean - spread <= value <= mean + spread:
            lines.append(
                f"{name} is outside the expected range using tolerance: {tolerance}. Lower limit: {mean - spread}  "
                f"Upper limit: {mean + spread}  Actual Value: {value}\n"
            )
    return "".join(lines)
