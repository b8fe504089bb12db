"""What timing the calls of compiled graphs costs a steady step of ``torch.compile`` (inductor).

    OMP_NUM_THREADS=1 nice python benchmarks/graph_calls.py [--steps N] [--share SECONDS]

Three programs: one small graph, the worst case; a function that a graph break cuts in two; a training step. In each, a
clock is read around what stands in the class of graphs and around PyTorch's own function in it, while calls are let
through and while all are timed: the difference is what the timer takes, where the program runs it. Medians over calls,
less that of the two clocks alone, so that other programs may run beside it. A window's event is timed by itself, and
shared among its calls. From these comes what a step costs more with as many calls timed as the timer times at most.
``--share`` compares instead the share that the report tells with that by the program's own clock around every call.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch
import torch._inductor.output_code

import xlaprof
from xlaprof import events
from xlaprof.analysis.run import Run
from xlaprof.recording import recorder
from xlaprof.sources.dynamo.calls import timer, windows


def programs() -> dict[str, Callable[[], Any]]:
    def small(x: Any) -> Any:
        return (x * 2 + 1).relu()

    def broken(x: Any) -> Any:
        y = torch.tanh(x)
        torch._dynamo.graph_break()
        return y * 2

    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(64, 64), torch.nn.GELU())]
    net = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    fast, one, two = torch.compile(net), torch.compile(small), torch.compile(broken)
    x, batch = torch.ones(16), torch.randn(32, 64)

    def inference(function: Any) -> None:
        with torch.no_grad():
            function(x)

    def train() -> None:
        optimizer.zero_grad()
        fast(batch).square().mean().backward()
        optimizer.step()

    return {
        "one small graph": lambda: inference(one),
        "cut by a break": lambda: inference(two),
        "training step": train,
    }


class Never:
    """In the place of the pauses: there is none, or one without end."""

    until = 1 << 62
    by_clock = False

    def __init__(self, pause: int) -> None:
        self.pause = pause

    def after(self, first: int, now: int, calls: int) -> int:
        return self.pause


class Taken:
    """Calls of graphs, with what is between their class and PyTorch's function: the timer, or nothing."""

    def __init__(self, plain: Any, pause: int | None) -> None:
        self.spans: list[int] = []
        self.whole: list[int] = []

        def inner(graph: Any, inputs: Any) -> Any:
            begin = perf_counter_ns()
            try:
                return plain(graph, inputs)
            finally:
                self.spans.append(perf_counter_ns() - begin)

        call: Any = inner
        if pause is not None:
            rec: Any = recorder.active
            one = timer.Timer(rec, lambda number, *_: events.TimedGraph(0, number), print)
            pauses: Any = Never(pause)
            one._pauses = pauses
            call = one._around_call(inner)

        def outer(self_: Any, inputs: Any) -> Any:
            begin = perf_counter_ns()
            try:
                return call(self_, inputs)
            finally:
                self.whole.append(perf_counter_ns() - begin)

        self.outer = outer

    @property
    def more(self) -> float:
        """ns of a call outside of PyTorch's function."""
        late = len(self.whole) // 4  # all that is let through begins with a window
        both = zip(self.whole[late:], self.spans[late:], strict=True)
        return statistics.median(whole - span for whole, span in both)


def compared(work: Callable[[], Any], steps: int) -> tuple[float, float, float]:
    """ns of a step as it is, and how many more a call takes that is let through, and one that is timed."""
    found: Any = torch._inductor.output_code.CompiledFxGraph
    plain, took = found.__call__, []
    for _ in range(steps):
        begin = perf_counter_ns()
        work()
        took.append(perf_counter_ns() - begin)
    with tempfile.TemporaryDirectory() as folder, xlaprof.record(Path(folder) / "run.log"):
        before = found.__call__
        kinds = [Taken(plain, pause) for pause in (None, 1 << 60, 0)]
        try:
            for _ in range(10):
                for one in kinds:
                    found.__call__ = one.outer
                    for _ in range(steps // 10):
                        work()
        finally:
            found.__call__ = before
        clocks, through, timed = (one.more for one in kinds)
        return statistics.median(took), through - clocks, timed - clocks + a_window() / windows.CALLS


def a_window() -> float:
    """ns that the event of a window takes."""
    rec: Any = recorder.active
    one = timer.Timer(rec, lambda number, *_: events.TimedGraph(0, number), print)
    noted = [(1 << 40 | i << 10, 1 << 40 | i << 10 | 500, i % 4, 1, i // 4) for i in range(windows.CALLS)]
    took = []
    for _ in range(50):
        begin = perf_counter_ns()
        one._emit(noted)
        took.append(perf_counter_ns() - begin)
    return statistics.median(took)


def calls_of(work: Callable[[], Any]) -> int:
    """Calls of graphs in a step."""
    with tempfile.TemporaryDirectory() as folder:
        with xlaprof.record(path := Path(folder) / "run.log"):
            for _ in range(20):
                work()
        return sum(len(one.took) for one in xlaprof.read(path) if isinstance(one, events.GraphCalls)) // 20


def share(size: int, seconds: float) -> None:
    """A training of a function that a break cuts, with matrices of ``size``: its share by both clocks."""

    def step(x: Any, w: Any) -> Any:
        y = torch.tanh(x @ w) * 2
        torch._dynamo.graph_break()
        return (y @ w).relu().sum()

    fast, x, w = torch.compile(step), torch.randn(size, size, requires_grad=True), torch.randn(size, size)
    for _ in range(5):
        fast(x, w).backward()
    found: Any = torch._inductor.output_code.CompiledFxGraph
    plain, spent, steps = found.__call__, [0, 0], 0

    def own(graph: Any, inputs: Any) -> Any:
        begin = perf_counter_ns()
        try:
            return plain(graph, inputs)
        finally:
            spent[0] += perf_counter_ns() - begin
            spent[1] += 1

    found.__call__ = own
    try:
        with tempfile.TemporaryDirectory() as folder:
            with xlaprof.record(path := Path(folder) / "run.log"):
                begin = perf_counter_ns()
                while perf_counter_ns() < begin + seconds * 1e9:
                    with xlaprof.StepTrace("train", step_num=steps):
                        fast(x, w).backward()
                    steps += 1
                took = perf_counter_ns() - begin
            told = Run().feed_all(xlaprof.read(path)).report().torch_compile.run_time
    finally:
        found.__call__ = plain
    print(
        f"{took / steps / 1e3:8,.0f} us a step: {spent[0] / took:.3f} in graphs by the program's clock, "
        f"{told.share or 0.0:.3f} told ({told.timed:,} of {spent[1]:,} calls timed)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=10_000, help="of each program")
    parser.add_argument("--share", type=float, metavar="SECONDS", help="compare shares, in runs of so many seconds")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.share:
        for size in (16, 64, 256):
            share(size, args.share)
        return
    for name, work in programs().items():
        for _ in range(20):
            work()
        calls = calls_of(work)
        step, through, timed = compared(work, args.steps)
        pace = windows.EVERY_NS / step * calls  # calls from a window to the next
        often = min(1.0, windows.CALLS / pace)
        fast = step / calls < windows.FAST_NS
        let = min(1 - often, windows.FURTHER / 2 / pace) if fast else 1 - often
        cost = calls * (let * through + often * timed) / step
        print(
            f"{name:16} {step / 1e3:8,.1f} us a step of {calls} calls; a call let through {through:5,.0f} ns more "
            f"({let:.1%} are), timed {timed:6,.0f} ns ({often:.1%}): {cost:+.2%}"
        )


if __name__ == "__main__":
    main()
