"""How fast this machine is beside the one that the peers were measured on.

    OMP_NUM_THREADS=1 python benchmarks/machine.py [--repeat 15]

PyTorch's own operations on CPU tensors, which were measured there by the same method: the chains of `record_ops.py`,
and an inference of the llama. What the host does in Python and C++ goes with the first ratio, what a CPU as the device
does with the second. A figure divided by its ratio is what the peers' machine would be expected to print.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from typing import NamedTuple

import torch
from llama import BATCH, LENGTH, VOCABULARY, Llama
from record_ops import chains

#: torch 2.9 on the peers' machine: CPU us per operation of a chain; CPU ms of one inference of the llama
OPERATION_US = {"x + a, x * b (tensors)": 1.40, "tanh, t, sub, relu": 1.58}
INFERENCE_MS = 25.7


class Slowness(NamedTuple):
    """CPU time here over CPU time there: above 1, this machine is slower."""

    host: float
    device: float


def operations_us(repeat: int, ops: int = 1000) -> dict[str, float]:
    """Least CPU us per operation of PyTorch's own, by chain."""
    found = {}
    x = torch.rand(16, 16)
    for name, chain in chains(ops, "cpu").items():
        if name not in OPERATION_US:
            continue
        times = []
        for _ in range(repeat):
            start = time.process_time()
            chain(x)
            times.append(time.process_time() - start)
        found[name] = min(times) / ops * 1e6
    return found


def inference_ms(repeat: int) -> float:
    """Least CPU ms of an inference of the llama in PyTorch's eager mode."""
    torch.manual_seed(0)
    model = Llama().eval()
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
    times = []
    with torch.no_grad():
        for _ in range(repeat):
            start = time.process_time()
            model(tokens)
            times.append(time.process_time() - start)
    return min(times) * 1e3


def slowness(repeat: int = 15) -> Slowness:
    """Measured now: machines that are shared change from minute to minute."""
    logs = [math.log(us / OPERATION_US[name]) for name, us in operations_us(repeat).items()]
    return Slowness(math.exp(sum(logs) / len(logs)), inference_ms(repeat) / INFERENCE_MS)


def tell() -> str:
    """One line for benchmarks that print a peer's figures."""
    host, device = slowness()
    return f"PyTorch's own operations take {host:.2f} times, a model on its CPU {device:.2f} times what they took there"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"{'PyTorch on the CPU':26}{'here':>8}{'there':>8}")
    for name, us in operations_us(args.repeat).items():
        print(f"{name:26}{us:8.2f}{OPERATION_US[name]:8.2f}  us per operation")
    print(f"{'llama, inference':26}{inference_ms(args.repeat):8.1f}{INFERENCE_MS:8.1f}  ms")
    print(tell())


if __name__ == "__main__":
    main()
