"""Counters and timed metrics, under PyTorch/XLA's names."""

from __future__ import annotations

import re
import threading
import time
from typing import Any, cast

import jax
import pytest
import torch

import xlaprof.runtime as xr
from xlaprof.runtime import metrics
from xlaprof.runtime.execution import inflight
from xlaprof.runtime.tape import tapes


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
    assert {"CompileTime", "ExecuteTime", "TransferFromDeviceTime", "TransferToDeviceTime"} <= set(
        metrics.metric_names()
    )
    samples, total, recent = metrics.metric_data("ExecuteTime")  # type: ignore[misc]
    assert samples == len(recent) == 1
    assert total == recent[0][1] > 0
    assert metrics.executed_fallback_ops() == ["aten::_local_scalar_dense"]


def test_an_execution_whose_value_was_read_has_ended_though_its_token_is_late() -> None:
    class Token:
        """Ready as soon as the program's own thread waits for it: the thread that times executions comes later."""

        asked = threading.Event()

        def is_ready(self) -> bool:
            return self.asked.is_set()

        def block_until_ready(self) -> None:
            if threading.current_thread() is threading.main_thread():
                self.asked.set()
            assert self.asked.wait(60)

    value = jax.numpy.ones(3)
    try:
        run = inflight.InFlight(tapes.tape(), 1, [], time.perf_counter_ns(), 1, Token(), "sync", (), cast(Any, None))
        inflight.add(run, [value])
        assert metrics.metric_data("ExecuteTime") == (1, 0, [])  # it may be running still
        inflight.were_read([value])
        samples, total, _ = metrics.metric_data("ExecuteTime")  # type: ignore[misc]
        assert samples == 1
        assert total > 0
    finally:
        Token.asked.set()


def test_after_a_read_its_execution_has_been_timed() -> None:
    x = torch.ones(7, 5).to("xla")
    for runs in range(1, 21):
        (x * 2.5).cpu()  # nobody waits for the thread that times it
        samples, _, recent = metrics.metric_data("ExecuteTime")  # type: ignore[misc]
        assert samples == len(recent) == runs


def test_bytes_and_numbers_are_metrics_too() -> None:
    x = torch.ones(4, 8).to("xla")
    x.mul_(0.26171875)  # which no other test has brought to the device
    xr.sync()
    x.cpu()
    down, up = metrics.metric_data("InboundData"), metrics.metric_data("OutboundData")
    assert down is not None
    assert down[:2] == (1, 4 * 8 * 4)
    assert up is not None
    assert up[:2] == (2, 4 * 8 * 4 + 8)  # the tensor, and the number
    assert [value for _, value in metrics.metric_data("TensorsGraphSize")[2]] == [1]  # type: ignore[index]
    assert [value for _, value in metrics.metric_data("InputOutputAliasCount")[2]] == [1]  # type: ignore[index]
    assert "  Accumulator: 128.00B\n" in metrics.metrics_report()


def test_every_operation_is_counted_under_its_name() -> None:
    x = torch.ones(2, 3).to("xla")
    for _ in range(5):
        x = (x + 1.5).t().reshape(2, 3)
        x += 2.5
        xr.sync()
    assert metrics.counter_value("xla::add") == 10  # in place or not
    assert metrics.counter_value("xla::t_copy") == 5
    assert (x * 3).shape == (2, 3)
    assert metrics.counter_value("xla::mul") == 1  # also what is still pending


def test_cleared_counters_begin_again_in_the_middle_of_a_graph() -> None:
    x = torch.tensor(100, device="xla")
    x += 2
    assert "xla::add" in metrics.metrics_report()
    metrics.clear_counters()
    assert metrics.counter_names() == []
    assert metrics.counter_value("xla::add") is None
    x += 2
    assert metrics.counter_value("xla::add") == 1
    xr.sync()
    assert metrics.counter_value("xla::add") == 1


def test_a_tensor_made_is_counted_and_one_that_died_too() -> None:
    made = torch.tensor(2077, device="xla")
    assert metrics.counter_value("CreateXlaTensor") == 1
    result = (made * 3 + 1).float()
    xr.sync()
    assert metrics.counter_value("CreateXlaTensor") == 4
    assert metrics.counter_value("DestroyXlaTensor") == 2  # the product, and the sum
    assert result.item() == 6232.0


def test_the_report_reads_as_pytorch_xlas() -> None:
    (torch.ones(2).to("xla") * 2.5).sum().item()
    report = xr.metrics.metrics_report()
    metric = r"Metric: \w+\n  TotalSamples: \d+\n  Accumulator: \S+\n"
    rates = r"(  ValueRate: \S+ / second\n  Rate: \S+ / second\n)?"
    percentiles = r"  Percentiles: 1%=\S+( \d+%=\S+){8}\n"
    counter = r"Counter: \S+\n  Value: \d+\n"
    half = f"({metric}{rates}{percentiles})+({counter})+"
    assert re.fullmatch(half + half, report), report
    tensors, client = report.split("Metric: CompileTime\n")
    assert "Counter: UncachedCompile" in tensors
    assert "Counter: xla::mul" in tensors
    assert client.endswith("Counter: aten::_local_scalar_dense\n  Value: 1\n")


def test_the_short_report_has_what_matters_and_all_fallbacks() -> None:
    (torch.ones(2).to("xla") * 2.5).sum().item()
    xr.sync()
    short = xr.metrics.short_metrics_report()
    assert "ExecuteTime" in short
    assert "MarkStep" in short
    assert "TensorToData" not in short
    chosen = xr.metrics.short_metrics_report(counter_names=["ExecuteComputation"], metric_names=["InboundData"])
    assert re.findall(r"(?:Metric|Counter): (\S+)", chosen) == [
        "InboundData", "ExecuteComputation", "aten::_local_scalar_dense"
    ]  # fmt: skip


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
