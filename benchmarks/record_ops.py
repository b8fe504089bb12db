"""What recording one operation costs, beside C++ torch_xla.

    OMP_NUM_THREADS=1 python benchmarks/record_ops.py [--ops 1000] [--repeat 9]

The same method as the peer's figures: a chain of 1000 operations on a 16x16 tensor, its graph compiled before, process
CPU time on one core (the process pins itself), no recording on. "record" is the chain alone, "sync" the barrier after
it (hand-over, not the run). The best of the repeats is quoted: noise only ever adds.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import torch

import xlaprof.runtime as xr

#: chain -> (torch_xla 2.9's us per operation, what we set ourselves)
PEER = {
    "x + a, x * b (tensors)": (3.99, 6),
    "x + 0.001, x * 0.999": (9.05, 9),
    "add_, mul_": (16.68, 10),
    "tanh, t, sub, relu": (3.50, 6),
}


def chains(n: int, device: str = "xla") -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """The four chains of ``n`` operations."""
    a, b = torch.rand(16, 16).to(device), (torch.rand(16, 16) * 0.1 + 0.95).to(device)

    def tensors(x: torch.Tensor) -> torch.Tensor:
        for _ in range(n // 2):
            x = x + a
            x = x * b
        return x

    def scalars(x: torch.Tensor) -> torch.Tensor:
        for _ in range(n // 2):
            x = x + 0.001
            x = x * 0.999
        return x

    def in_place(x: torch.Tensor) -> torch.Tensor:
        for _ in range(n // 2):
            x.add_(0.001)
            x.mul_(0.999)
        return x

    def unary(x: torch.Tensor) -> torch.Tensor:
        for _ in range(n // 4):
            x = torch.tanh(x)
            x = x.t()
            x = x - a
            x = torch.relu(x)
        return x

    return dict(zip(PEER, (tensors, scalars, in_place, unary), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=9)
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"{'CPU us per operation':26}{'record':>8}{'wanted':>8}{'torch_xla':>11}{'+ sync':>9}")
    for name, chain in chains(args.ops).items():
        recorded, synced = [], []
        for _ in range(args.repeat):
            x = torch.rand(16, 16).to("xla")
            xr.sync(wait=True)
            start = time.process_time()
            y = chain(x)
            middle = time.process_time()
            xr.sync()
            synced.append(time.process_time() - start)
            recorded.append(middle - start)
            xr.wait_device_ops()
            del y
        record, both = (min(times[2:]) / args.ops * 1e6 for times in (recorded, synced))
        peer, wanted = PEER[name]
        print(f"{name:26}{record:8.2f}{wanted:8d}{peer:11.2f}{both:9.2f}")


if __name__ == "__main__":
    main()
