"""What observing ``torch.compile`` costs: a steady compiled step, and a compilation, with and without a recording.

    nice python benchmarks/dynamo_observe.py [--steps N] [--rounds N] [--inductor N]

A step of a compiled model that compiles nothing writes no record of Dynamo's trace, so it should cost the same to the
instruction; rounds with and without a recording alternate in one process, and the least CPU time of each counts. Of a
compilation (after ``torch._dynamo.reset``) the CPU time of the thread is compared the same way: with backend "eager",
where Dynamo's trace is most of it, and with inductor without its caches, forward and backward of a transformer's layer.
The recording's own writer thread is in no figure, nor is the C++ compiler that inductor starts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch._dynamo

import xlaprof


def model() -> torch.nn.Module:
    layers = [layer for _ in range(10) for layer in (torch.nn.Linear(32, 32), torch.nn.GELU())]
    return torch.nn.Sequential(*layers)


def spent(work: Callable[[], None]) -> float:
    """Seconds of CPU time of this thread."""
    before = time.thread_time()
    work()
    return time.thread_time() - before


def alternating(work: Callable[[], None], rounds: int) -> tuple[float, float]:
    """The least time of ``work`` without and with a recording."""
    without, within = [], []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(rounds):
            without.append(spent(work))
            with xlaprof.record(Path(folder) / f"{i}.log"):
                within.append(spent(work))
    return min(without), min(within)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=2000, help="compiled steps in a round")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of each")
    parser.add_argument("--inductor", type=int, default=5, help="rounds of the compilation by inductor")
    args = parser.parse_args()
    torch.set_num_threads(1)
    net, x = model(), torch.randn(4, 32)
    fast = torch.compile(net, backend="eager")
    with torch.no_grad():
        fast(x)

        def steps() -> None:
            for _ in range(args.steps):
                fast(x)

        def compilation() -> None:
            torch._dynamo.reset()
            torch.compile(net, backend="eager")(x)

        steps()
        print_times("steady compiled step", *alternating(steps, args.rounds), args.steps)
        compilation()
        print_times("compilation, eager", *alternating(compilation, args.rounds), 1)
    if args.inductor:
        print_times("compilation, inductor", *alternating(by_inductor(), args.inductor), 1)


def by_inductor() -> Callable[[], None]:
    """A compilation that finds nothing in a cache, in this thread."""
    import torch._inductor.config as inductor

    inductor.force_disable_caches, inductor.compile_threads = True, 1
    layer, x = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), torch.randn(2, 16, 64)

    def compilation() -> None:
        torch._dynamo.reset()
        torch.compile(layer)(x).sum().backward()

    compilation()
    return compilation


def print_times(what: str, without: float, within: float, times: int) -> None:
    each, recorded = without / times * 1e6, within / times * 1e6
    print(f"{what:22} {each:12,.1f} us  recorded {recorded:12,.1f} us  {within / without - 1:+.2%}")


if __name__ == "__main__":
    main()
