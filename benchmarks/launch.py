"""Training on 1, 2 and 4 processes: weak scaling, beside DDP with gloo; its gradients are compared with DDP's.

    python benchmarks/launch.py [--steps 30] [--processes 1 2 4]

Each process trains the same MLP (Adam, 64 rows each) on ``xla`` devices with ``optimizer_step``, and then as PyTorch's
``DistributedDataParallel`` over gloo on the CPU. Each has one core (two share one where there are more processes
than cores). A step is the median of all; efficiency is the rows per second, of what one process does times the cores
in use. Wanted: gradients of the first step within 1e-6 of DDP's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import xlaprof.runtime as xr
from xlaprof.runtime import distributed as xd

ROWS, WIDTH, LAYERS = 64, 512, 6


def model() -> nn.Module:
    """The same one in every process."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each rank and step another one."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(ROWS, WIDTH, generator=generator), torch.randint(0, 10, (ROWS,), generator=generator)


def on_xla(rank: int, steps: int) -> tuple[list[torch.Tensor], list[float]]:
    """Gradients of the first step, and seconds of each."""
    net = model().to("xla")
    optimizer = torch.optim.Adam(net.parameters())
    loss_fn = nn.CrossEntropyLoss()
    gradients, times = [], []
    for step in range(steps):
        x, y = batch(rank, step)
        began = time.perf_counter()
        optimizer.zero_grad()
        loss_fn(net(x.to("xla")), y.to("xla")).backward()
        if step == 0:
            xd.reduce_gradients(optimizer)
            gradients = [p.grad.cpu() for p in net.parameters() if p.grad is not None]
            optimizer.step()
        else:
            xr.optimizer_step(optimizer)
        xr.sync(wait=True)
        times.append(time.perf_counter() - began)
    return gradients, times


def as_ddp(rank: int, steps: int) -> tuple[list[torch.Tensor], list[float]]:
    """The same, by PyTorch alone."""
    torch.set_num_threads(1)
    net: nn.Module = model()
    if xd.world_size() > 1:
        dist.init_process_group("gloo")
        net = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(net.parameters())
    loss_fn = nn.CrossEntropyLoss()
    gradients, times = [], []
    for step in range(steps):
        x, y = batch(rank, step)
        began = time.perf_counter()
        optimizer.zero_grad()
        loss_fn(net(x), y).backward()
        if step == 0:
            gradients = [p.grad.clone() for p in net.parameters() if p.grad is not None]
        optimizer.step()
        times.append(time.perf_counter() - began)
    if xd.world_size() > 1:
        dist.destroy_process_group()
    return gradients, times


def measure(index: int, steps: int, folder: str) -> None:
    """One rank's part."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[index % len(cores)]})
    gradients, times = on_xla(index, steps)
    xd.rendezvous("xla is done")
    expected, ddp_times = as_ddp(index, steps)
    off = max((a - b).abs().max().item() for a, b in zip(gradients, expected, strict=True))
    warm = steps // 3
    all_of_it = xd.exchange_objects("results", (times[warm:], ddp_times[warm:], off))
    if index == 0:
        torch.save(all_of_it, os.path.join(folder, f"{xd.world_size()}.pt"))


def main() -> int:
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2, 4])
    args = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    alone: dict[str, float] = {}
    worst = 0.0
    print(f"{cores} cores, {ROWS} rows per process, MLP of {LAYERS} layers of {WIDTH}, Adam")
    print("processes         ms/step  rows/s  efficiency   gradients' largest difference from DDP")
    for count in args.processes:
        with tempfile.TemporaryDirectory() as folder:
            _launch(count, args.steps, folder)
            ranks: Any = torch.load(os.path.join(folder, f"{count}.pt"), weights_only=True)
        off = max(rank[2] for rank in ranks)
        worst = max(worst, off)
        for name, which in (("xla", 0), ("DDP", 1)):
            step = statistics.median(t for rank in ranks for t in rank[which])
            rate = count * ROWS / step
            efficiency = rate / (alone.setdefault(name, rate / count) * min(count, cores))
            end = f"   {off:.1e}" if which == 0 else ""
            print(f"{count:9}  {name}  {step * 1e3:9.2f} {rate:7.0f}  {efficiency:9.0%}{end}", flush=True)
    print(f"gradients within {worst:.1e} of DDP's (wanted: 1e-6)")
    return 0 if worst <= 1e-6 else 1


def _launch(count: int, steps: int, folder: str) -> None:
    """In processes of their own, also where it is one: this one keeps its cores."""
    import multiprocessing

    if count == 1:
        process = multiprocessing.get_context("spawn").Process(target=measure, args=(0, steps, folder))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(process.exitcode)
    else:
        xd.launch(measure, (steps, folder), nprocs=count)


if __name__ == "__main__":
    sys.exit(main())
