"""What is true of a program on a GPU: PyTorch's profiler and the clock, beside the recording of the same run."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


class Truth:
    def __init__(self) -> None:
        self.said: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}

    def add(self, name: str, ns: int) -> None:
        self.said[name] = self.said.get(name, 0) + ns

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        begin = time.perf_counter_ns()
        yield
        self.add(name, time.perf_counter_ns() - begin)


def union(spans: list[tuple[float, float]]) -> float:
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


@contextmanager
def measured() -> Iterator[Truth]:
    """The loop within it: from when to when (ns), and for how much of that the device was busy, into argv[1]."""
    truth = Truth()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        truth.said["begin"] = time.perf_counter_ns()
        yield truth
        torch.cuda.synchronize()
        truth.said["end"] = time.perf_counter_ns()
    kernels, copies = [], []
    for one in prof.events():
        if one.device_type == torch.autograd.DeviceType.CUDA:
            between = "Memcpy" in one.name and "DtoD" not in one.name
            (copies if between else kernels).append((one.time_range.start, one.time_range.end))
    truth.said |= {"busy": round(union(kernels) * 1e3), "copying": round(union(copies) * 1e3), "kernels": len(kernels)}
    with open(sys.argv[1], "w") as file:
        json.dump(truth.said, file)


def python(ms: float) -> None:
    """The host runs Python that long."""
    until = time.perf_counter_ns() + ms * 1e6
    while time.perf_counter_ns() < until:
        sum(range(200))
