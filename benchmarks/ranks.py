"""Data-parallel training on the CPU: gradients beside DDP with gloo, weak scaling, what the ranks' agreement costs.

    OMP_NUM_THREADS=1 python benchmarks/ranks.py [--ranks 1 2 4] [--steps 60]

Ranks are processes of one machine, which share its cores: weak scaling (the same batch on each rank) is bounded by
them, so DDP with gloo is measured on the same ranks, with the same model. A step is forward, backward, averaging of the
gradients and Adam; the median of the steps after a warm-up, the slowest rank's. "differ by" is the largest difference
of a gradient from DDP's, relative to the largest gradient. "launch" is what a program with collectives costs more, on
the host, before it is handed over: looking whether it is the one all ranks are expected to run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import xlaprof.runtime as xr
from xlaprof.runtime import distributed as xd
from xlaprof.runtime.distributed.job import world
from xlaprof.runtime.distributed.programs import agreement

WIDTH, BATCH, WARM_UP = 512, 64, 10


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))


def batch(rank: int) -> torch.Tensor:
    return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(rank))


def gradients(net: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten().cpu() for p in net.parameters() if p.grad is not None])


def timed(step: Any, steps: int) -> float:
    """ms of a step, the median."""
    took = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        took.append(time.perf_counter() - start)
    return statistics.median(took[WARM_UP:]) * 1e3


def measure(rank: int, steps: int) -> None:
    torch.set_num_threads(1)
    x, ours, theirs = batch(rank), model().to("xla"), model()
    if xd.world_size() > 1:
        dist.init_process_group("xla", init_method="xla://")
        theirs = DistributedDataParallel(theirs, process_group=dist.new_group(backend="gloo"))
    xla, adam, reference = x.to("xla"), *(torch.optim.Adam(m.parameters(), lr=1e-3) for m in (ours, theirs))

    def step() -> None:
        adam.zero_grad()
        ours(xla).square().mean().backward()
        xr.optimizer_step(adam)
        xr.sync(wait=True)

    def ddp() -> None:
        reference.zero_grad()
        theirs(x).square().mean().backward()
        reference.step()

    for run in (step, ddp):
        run()
    a, b = gradients(ours), gradients(theirs)
    differ = float((a - b).abs().max() / b.abs().max())
    mine = {"ours": timed(step, steps), "ddp": timed(ddp, steps), "differ": differ, "launch": 0.0}
    link = world.link()
    if link is not None:
        turns = link.turns[tuple(range(xd.world_size()))]
        program = agreement.Program(link, (-1,), turns[1], False)  # ranks that nobody else knows
        program.launching()
        start = time.perf_counter()
        for _ in range(100_000):
            program.launching()
        mine["launch"] = (time.perf_counter() - start) * 10  # us
        del link.turns[(-1,)]
    every = xd.exchange_objects("measured", mine)
    if rank == 0:
        slowest = {name: max(one[name] for one in every) for name in mine}
        print(
            f"{xd.world_size():5}  {slowest['ours']:11.2f}  {slowest['ddp']:11.2f}  "
            f"{slowest['differ']:10.1e}  {slowest['launch']:9.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    print("ranks  ms per step  DDP's, gloo   differ by  launch us")
    for nprocs in args.ranks:
        xd.launch(measure, args=(args.steps,), nprocs=nprocs)


if __name__ == "__main__":
    main()
