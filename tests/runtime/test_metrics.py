"""Counters and timed metrics, under PyTorch/XLA's names."""

from __future__ import annotations

import re

import pytest
import torch

import xlaprof.runtime as xr
from xlaprof.runtime import metrics


@pytest.fixture(autouse=True)
def _from_zero() -> None:
    xr.sync(wait=True)
    metrics.clear_all()


def test_a_step_counts_what_it_did() -> None:
    x = torch.ones(3, 31).to("xla")
    y = (x * 2.5).sum()
    xr.sync(wait=True)
    assert y.item() == 3 * 31 * 2.5
    assert metrics.counter_value("MarkStep") == 1
    assert metrics.counter_value("UncachedCompile") == 1
    assert metrics.metric_names() == ["CompileTime", "ExecuteTime", "TransferFromDeviceTime", "TransferToDeviceTime"]
    samples, total, recent = metrics.metric_data("ExecuteTime")  # type: ignore[misc]
    assert samples == len(recent) == 1
    assert total == recent[0][1] > 0
    assert metrics.counter_names() == ["MarkStep", "UncachedCompile", "aten::_local_scalar_dense"]
    assert metrics.executed_fallback_ops() == ["aten::_local_scalar_dense"]


def test_the_report_reads_as_pytorch_xlas() -> None:
    (torch.ones(2).to("xla") * 2.5).sum().item()
    report = xr.metrics.metrics_report()
    assert re.search(r"^Metric: CompileTime\n  TotalSamples: \d+\n  Accumulator: \S+us\n", report)
    assert "  Percentiles: 1%=" in report
    assert report.endswith("Counter: aten::_local_scalar_dense\n  Value: 1\n")
    assert "CompileTime" in xr.metrics.short_metrics_report()
    assert xr.metrics.short_metrics_report(counter_names=["MarkStep"], metric_names=[]) == ""


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "000.000us"),
        (4_500, "004.500us"),
        (1_002_003, "001ms002.003us"),
        (62_003_004_500, "01m02s003ms004.500us"),
        (90_000_000_000_000, "01d01h00m00s000ms000.000us"),
    ],
)
def test_durations(ns: int, text: str) -> None:
    assert metrics._duration(ns) == text


def test_what_was_never_counted_is_none() -> None:
    assert metrics.counter_value("nothing") is None
    assert metrics.metric_data("nothing") is None
    assert metrics.metrics_report() == ""
