"""What eager mode costs per operation, and a step in lazy mode, eager mode and compile, beside torch_xla.

    OMP_NUM_THREADS=1 python benchmarks/modes.py [--ops 400] [--rounds 8] [--only eager|mlp|llama]

CPU time of one core (the process pins itself), everything included: on a CPU the device's work is CPU time too. The
modes take turns in blocks of steps, so that noise of the machine meets them alike; the figures are the best block's,
"lazy / compile" and "compiled speed" the median over the rounds. Models and method are those of the peer's figures.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import machine
import torch
from llama import BATCH, LENGTH, VOCABULARY, Llama
from record_ops import chains
from torch import nn
from torch.nn import functional as F

import xlaprof.runtime as xr

os.environ.setdefault("XLAPROF_CACHE_DIR", "off")  # compiling is part of what is measured

#: chain -> torch_xla 2.9's us per operation in eager mode
EAGER = dict(zip(chains(0), (54.3, 65.1, 80.2, 55.8), strict=True))
#: what -> torch_xla 2.9's ms: lazy, eager, compile
PEER = {
    "MLP train Adam": (3.88, 10.5, 3.68),
    "MLP train SGD": (1.02, 4.43, 1.10),
    "MLP infer": (0.219, 0.619, 0.242),
    "llama train Adam": (115.3, 166.5, 113.2),
    "llama infer": (27.2, 48.8, 25.2),
}


def eager_operations(ops: int, rounds: int) -> None:
    """Print us per operation of the four chains."""
    print(f"{'CPU us per operation, eager':28}{'ours':>8}{'wanted':>8}{'torch_xla':>11}")
    xr.eager_mode(True)
    for name, chain in chains(ops).items():
        times = []
        for _ in range(rounds + 2):
            x = torch.rand(16, 16).to("xla")
            xr.wait_device_ops()
            start = time.process_time()
            y = chain(x)
            y.cpu()
            times.append((time.process_time() - start) / ops * 1e6)
        print(f"{name:28}{min(times[2:]):8.1f}{25:8d}{EAGER[name]:11.1f}")
    xr.eager_mode(False)


def what_compile_adds(rounds: int, calls: int = 3000) -> None:
    """Print the us of a barrier with nothing before it, and of an empty compiled function's call."""

    def empty() -> None:
        pass

    compiled = xr.compile(empty)
    best: dict[str, float] = {}
    for name, eager, call in (("sync()", False, xr.sync), ("a call of compile(f)", True, compiled)):
        with xr.eager_mode_context(eager):
            for _ in range(rounds):
                start = time.process_time()
                for _ in range(calls):
                    call()
                spent = (time.process_time() - start) / calls * 1e6
                best[name] = min(spent, best.get(name, spent))
    print(", ".join(f"{name} with nothing recorded: {us:.1f} us" for name, us in best.items()))


def mlp(make: Callable[..., torch.optim.Optimizer] | None) -> Callable[[], None]:
    """A step of the MLP 64-128-128-10 on a batch of 32, without the barrier."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)).to("xla")
    x, y = torch.rand(32, 64).to("xla"), torch.randint(0, 10, (32,)).to("xla")
    return _step(model, x, lambda out: F.cross_entropy(out, y), make)


def llama(make: Callable[..., torch.optim.Optimizer] | None) -> Callable[[], None]:
    """A step of the llama, without the barrier."""
    torch.manual_seed(0)
    model = Llama().to("xla")
    x, y = (torch.randint(0, VOCABULARY, (BATCH, LENGTH)).to("xla") for _ in range(2))
    return _step(model, x, lambda out: F.cross_entropy(out.view(-1, VOCABULARY), y.view(-1)), make)


def _step(
    model: nn.Module,
    x: torch.Tensor,
    loss_of: Callable[[torch.Tensor], torch.Tensor],
    make: Callable[..., torch.optim.Optimizer] | None,
) -> Callable[[], None]:
    if make is None:
        kept: list[torch.Tensor] = []

        def infer() -> None:
            with torch.no_grad():
                kept[:] = [model(x)]

        return infer
    optimizer = make(model.parameters())

    def train() -> None:
        optimizer.zero_grad()
        loss_of(model(x)).backward()
        optimizer.step()

    return train


def steps(name: str, step: Callable[[], None], block: int, rounds: int) -> None:
    """Print ms per step in the three modes, which take turns."""
    compiled = xr.compile(step)

    def lazily() -> None:
        step()
        xr.sync()

    runs = {"lazy": (lazily, False), "eager": (step, True), "compile": (compiled, True)}
    times: dict[str, list[float]] = {mode: [] for mode in runs}
    for round_ in range(rounds + 1):
        for mode, (run, eager) in runs.items():
            with xr.eager_mode_context(eager):
                if not round_:
                    for _ in range(4):  # a new optimizer compiles twice
                        run()
                xr.wait_device_ops()
                start = time.process_time()
                for _ in range(block):
                    run()
                xr.wait_device_ops()
                if round_:
                    times[mode].append((time.process_time() - start) / block * 1e3)
    best = [min(times[mode]) for mode in runs]
    ours = "".join(f"{ms:9.2f}" for ms in best)
    theirs = "".join(f"{ms:9.2f}" for ms in PEER[name])
    same = statistics.median(c / z for c, z in zip(times["compile"], times["lazy"], strict=True))
    speed = statistics.median(c / e for c, e in zip(times["compile"], times["eager"], strict=True))
    print(f"{name:18}{ours}   {theirs}{same:14.3f}{speed:14.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", choices=("eager", "mlp", "llama"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(machine.tell())
    if args.only in (None, "eager"):
        eager_operations(args.ops, args.rounds)
    if args.only == "eager":
        return
    what_compile_adds(args.rounds)
    ours, theirs = (f"{who + ' lazy':>9}{'eager':>9}{'compile':>9}" for who in ("our", "its"))
    print(f"{'CPU ms per step':18}{ours}   {theirs}{'compile/lazy':>14}{'eager speed':>14}")
    adam, sgd = (lambda p: torch.optim.Adam(p, lr=1e-3)), (lambda p: torch.optim.SGD(p, lr=0.01))
    cases: list[tuple[str, Callable[[], Callable[[], None]], int]] = []
    if args.only in (None, "mlp"):
        cases += [
            ("MLP train Adam", lambda: mlp(adam), 40),
            ("MLP train SGD", lambda: mlp(sgd), 60),
            ("MLP infer", lambda: mlp(None), 200),
        ]
    if args.only in (None, "llama"):
        cases += [("llama train Adam", lambda: llama(adam), 3), ("llama infer", lambda: llama(None), 8)]
    for name, make, block in cases:
        steps(name, make(), block, args.rounds)


if __name__ == "__main__":
    main()
