"""How busy PyTorch's GPU was, by a recording and by PyTorch's profiler: python benchmarks/cuda_busy.py

Phases of known character run within a recording, each within a profile. Compared is the share of the time in which the
device was busy: by the recording's executions, and by the kernels and copies that the profiler saw; and how long the
host waited for the device: by the recording, and by the clock around the calls that wait. Then: what a recording adds
to a step, without a profiler. Needs a GPU.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

import xlaprof
from xlaprof.events import Execute, Look

SIDE, STEPS = 4096, 100
PAIRS = 15


class Phase(NamedTuple):
    """What ran from ``begin`` to ``end`` (ns): the profiler's shares of busy time, and ns that the host waited."""

    name: str
    begin: int
    end: int
    computing: float
    copying: float
    waited: int


class Waits:
    """The time in calls that wait, by the clock."""

    def __init__(self) -> None:
        self.ns = 0

    def __enter__(self) -> None:
        self.ns -= time.perf_counter_ns()

    def __exit__(self, *exc: object) -> None:
        self.ns += time.perf_counter_ns()


def python(ms: float) -> None:
    until = time.perf_counter_ns() + ms * 1e6
    while time.perf_counter_ns() < until:
        sum(range(200))


class Slow(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        python(6)
        return torch.ones(64, SIDE, dtype=torch.bfloat16)


def phases(waits: Waits) -> Iterator[tuple[str, Callable[[], None]]]:
    """The phases by name: a function for each."""
    start = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    weight = start * 0.01
    small = torch.randn(64, 64, device="cuda")

    def heavy(x: torch.Tensor) -> torch.Tensor:
        for _ in range(24):
            x = torch.tanh(x @ weight)
        return x

    def steps(after: Callable[[torch.Tensor], object], count: int = STEPS) -> Callable[[], None]:
        def run() -> None:
            x = start
            for _ in range(count):
                x = heavy(x)
                after(x)
            torch.cuda.synchronize()

        return run

    def tiny() -> None:
        x = small
        for _ in range(20_000):
            x = torch.tanh(x)
        torch.cuda.synchronize()

    def loaded() -> None:
        for batch in torch.utils.data.DataLoader(Slow(), batch_size=None):
            heavy(batch.cuda() @ weight)
        torch.cuda.synchronize()

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = small
        for _ in range(200):
            out = torch.tanh(out)

    def replayed() -> None:
        for _ in range(500):
            graph.replay()
            python(0.2)
        torch.cuda.synchronize()

    def waiting(x: torch.Tensor) -> None:
        with waits:
            torch.cuda.synchronize()
        time.sleep(0.004)

    def reading(x: torch.Tensor) -> None:
        mean = x.float().mean()
        with waits:
            mean.item()

    def copying(x: torch.Tensor) -> None:
        with waits:
            x.cpu()

    yield "one after the other", steps(lambda x: None)
    yield "synchronize, and a sleep of 4 ms", steps(waiting)
    yield "the host runs Python, 8 ms", steps(lambda x: python(8))
    yield "item() in each step", steps(reading)
    yield "a copy of 32 MiB to the host", steps(copying)
    yield "a slow DataLoader", loaded
    yield "small kernels, one by one", tiny
    yield "a CUDA graph, and Python", replayed


def union(spans: Iterable[tuple[float, float]]) -> float:
    """The time within any of the spans."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def profiled(run: Callable[[], None]) -> tuple[int, int, float, float]:
    """Begin and end (ns), and the shares in which kernels ran, and copies between host and device, by the profiler."""
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        begin = time.perf_counter_ns()
        run()
        end = time.perf_counter_ns()
    kernels, copies = list[tuple[float, float]](), list[tuple[float, float]]()
    for one in prof.events():
        if one.device_type == torch.autograd.DeviceType.CUDA:
            between = "Memcpy" in one.name and "DtoD" not in one.name
            (copies if between else kernels).append((one.time_range.start, one.time_range.end))
    return begin, end, union(kernels) * 1e3 / (end - begin), union(copies) * 1e3 / (end - begin)


def compared() -> None:
    told, waits = list[Phase](), Waits()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run.log"
        with xlaprof.record(log, detail="full"):
            for name, run in phases(waits):
                profiled(run)  # seen once: what is loaded and made is there
                waits.ns = 0
                time.sleep(0.1)
                told.append(Phase(name, *profiled(run), waits.ns))
        events = list(xlaprof.read(log))
    heads = ("wall", "recording", "profiler", "copies", "waited", "by the clock")
    print(" " * 34 + "".join(f"{head:>{width}}" for head, width in zip(heads, (10, 11, 10, 8, 16, 14), strict=True)))
    for one in told:
        runs = [(e.start, e.end) for e in events if isinstance(e, Execute) and e.end > one.begin and e.start < one.end]
        busy = union((max(begin, one.begin), min(end, one.end)) for begin, end in runs)
        wall = one.end - one.begin
        looks = [
            e for e in events if isinstance(e, Look) and e.state == "device" and one.begin <= e.t + e.dur < one.end
        ]
        waited = f"{sum(e.dur for e in looks if e.state == 'device') / 1e6:.0f} ms"
        print(f"{one.name:34}{wall / 1e6:7.0f} ms{busy / wall:11.1%}{one.computing:10.1%}{one.copying:8.1%}", end="")
        print(f"{waited:>16}{one.waited / 1e6:11.0f} ms")


def added() -> None:
    """What a recording adds to a step: medians of pairs."""
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(16))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    x = torch.randn(64, 256, device="cuda")
    big = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

    def train() -> None:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def item() -> None:
        train()
        model[0].weight.sum().item()

    def heavy() -> None:
        for _ in range(20):
            torch.matmul(big, weight)

    def mixed() -> None:
        python(5)
        heavy()

    cases = (
        ("a training step of small kernels", train, 60),
        ("the same, with item()", item, 60),
        ("large matrix products", heavy, 30),
        ("the same, and 5 ms of Python", mixed, 20),
    )
    for name, step, count in cases:

        def each(step: Callable[[], None] = step, count: int = count) -> float:
            torch.cuda.synchronize()
            began = time.perf_counter_ns()
            for _ in range(count):
                step()
            torch.cuda.synchronize()
            return (time.perf_counter_ns() - began) / count / 1e3

        each()
        off, on, ratios = [], [], []
        with tempfile.TemporaryDirectory() as folder:
            for turn in range(PAIRS):
                first = turn % 2 == 0
                before = each() if first else 0.0
                with xlaprof.record(Path(folder) / f"{turn}.log"):
                    each()  # what the watch needs is made
                    on.append(each())
                off.append(before if first else each())
                ratios.append(on[-1] / off[-1] - 1)
        print(
            f"{name:34}{statistics.median(off):10.1f} us, recorded {statistics.median(on):10.1f} us: "
            f"{statistics.median(ratios):+.2%} (half of the pairs from {sorted(ratios)[PAIRS // 4]:+.2%} "
            f"to {sorted(ratios)[3 * PAIRS // 4]:+.2%})"
        )


def main() -> int:
    if not torch.cuda.is_available():
        print("PyTorch finds no GPU here: nothing was tried", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    compared()
    added()
    return 0


if __name__ == "__main__":
    sys.exit(main())
