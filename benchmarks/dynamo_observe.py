"""What observing ``torch.compile`` costs: a compiled training step that is in its stride, and a compilation.

    OMP_NUM_THREADS=1 nice python benchmarks/dynamo_observe.py [--rounds N] [--compilations N] [--backends inductor ...]

The step trains the llama of `llama.py` on 64 tokens with AdamW, its model compiled, with a StepTrace around, and is
measured as :mod:`_turns` says: all CPU time of the process, the writer's thread included. Beside inductor stands
aot_eager, where Dynamo and AOTAutograd do the same and what runs is PyTorch's own operations; and a call of a small
model with the backend "eager", the least that a compiled function can do.

Of compilations (after ``torch._dynamo.reset``, without inductor's caches) one with a recording is compared with the one
beside it without, whichever comes first. Each is the first compilation of its recording, which reads the program's
source for it. The CPU time is that of the process and of the C++ compilers that inductor starts. "tracing only" is the
backend "eager", where Dynamo's trace is most of it.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch._dynamo
from _turns import Plan, Step, again, compare, interval, settle_down
from llama import VOCABULARY, Llama
from torch.nn import functional as F

import xlaprof

BACKENDS = ("inductor", "aot_eager", "eager")
STEP, CALL = Plan(6, 1, 10, 60, 1.005), Plan(400, 40, 10, 2_000, 1.005)
WANTED = 0.04  # of a compilation


def training(backend: str) -> Step:
    """A training step of the llama, compiled."""
    torch.manual_seed(0)
    model = Llama()
    compiled = torch.compile(model, backend=backend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, VOCABULARY, (1, 64))

    def step(number: int) -> None:
        with xlaprof.StepTrace("train", step_num=number):
            optimizer.zero_grad()
            logits = compiled(tokens)
            F.cross_entropy(logits.view(-1, VOCABULARY), tokens.view(-1)).backward()
            optimizer.step()

    return step


def small_model() -> torch.nn.Module:
    layers = [layer for _ in range(10) for layer in (torch.nn.Linear(32, 32), torch.nn.GELU())]
    return torch.nn.Sequential(*layers)


def calling() -> Step:
    """A call of a small compiled model."""
    fast, x = torch.compile(small_model(), backend="eager"), torch.randn(4, 32)

    def step(number: int) -> None:
        with torch.no_grad():
            fast(x)

    return step


def trace() -> None:
    """A compilation of which Dynamo's trace is most."""
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(small_model(), backend="eager")(torch.randn(4, 32))


def compilation(backend: str) -> None:
    """A compilation that finds nothing in a cache, forward and backward of a transformer's layer."""
    torch._dynamo.reset()
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    torch.compile(layer, backend=backend)(torch.randn(2, 16, 64)).sum().backward()


def spent(work: Callable[[], None]) -> float:
    """Seconds of CPU time, of this process and of those that it waited for."""
    gc.collect()
    before = cpu_s()
    work()
    return cpu_s() - before


def cpu_s() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def compilations(what: str, work: Callable[[], None], pairs: int) -> None:
    """Print what a recording costs a compilation."""
    found: list[tuple[float, float]] = []
    work()
    with tempfile.TemporaryDirectory() as folder:

        def recorded() -> float:
            with xlaprof.record(Path(folder) / f"{len(found)}.log"):
                return spent(work)

        for number in range(pairs):
            if number % 2:
                without = spent(work)
                found.append((without, recorded()))
            else:
                within = recorded()
                found.append((spent(work), within))
    ratios = [within / without for without, within in found]
    low, high = interval(lambda: statistics.median(again(ratios)))
    without, within = (min(side) for side in zip(*found, strict=True))
    print(
        f"{what:24}{without:8.2f} s of CPU, recorded {within:8.2f} s (the least of each: {within / without - 1:+.1%}); "
        f"median of {pairs} pairs {statistics.median(ratios) - 1:+.1%} ({low - 1:+.1%} to {high - 1:+.1%} with 90 % of "
        f"them drawn again; wanted: <= {WANTED:.0%})",
        flush=True,
    )


def uncached() -> None:
    """Inductor finds nothing in a cache, and compiles in this process's main thread."""
    import torch._inductor.config as inductor

    inductor.force_disable_caches, inductor.compile_threads = True, 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--rounds", type=int, default=6, help="of steps with a recording, and as many without; 0: none")
    parser.add_argument("--turns", type=int, help="of a round")
    parser.add_argument("--compilations", type=int, default=8, help="pairs of compilations; 0: none")
    args = parser.parse_args()
    settle_down()
    print("load", *(f"{load:.1f}" for load in os.getloadavg()), "of", os.cpu_count(), "cores", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for backend in args.backends if args.rounds else ():
            make, plan = (calling, CALL) if backend == "eager" else (partial(training, backend), STEP)
            plan = plan._replace(turns=args.turns or plan.turns)
            print(f"a {'small call' if make is calling else 'training step'}, {backend}:", flush=True)
            compare(make, plan, args.rounds, Path(folder) / f"{backend}.log")
            sys.stdout.flush()
    if args.compilations:
        uncached()
        for backend in args.backends:
            if backend == "eager":
                compilations("compilation, tracing only", trace, args.compilations)
            else:
                compilations(f"compilation, {backend}", partial(compilation, backend), args.compilations)


if __name__ == "__main__":
    main()
