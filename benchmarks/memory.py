"""Memory of a long training run: the process does not grow, a step gives its buffers up, a dropped model is gone.

    OMP_NUM_THREADS=1 python benchmarks/memory.py [--steps 1000] [--warm-up 100]

"process": resident memory of 1,000 steps of an MLP with Adam, beside that after the warm-up. "device": the most that
was alive on the device around a barrier (what tensors hold, and what the program allocates: outputs that take over no
buffer, and XLA's temporary memory), beside parameters + gradients + the optimizer's state + that temporary memory.
Nothing here is timed.
"""

from __future__ import annotations

import argparse
import gc
import resource
from pathlib import Path

import torch
from torch import nn

import xlaprof.runtime as xr
from xlaprof.runtime.execution.program import cache

WIDTH, BATCH = 512, 16


def resident() -> int:
    """Bytes of memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


class Training:
    """An MLP, Adam, and how to take a step."""

    def __init__(self) -> None:
        layers = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)]
        self.model = nn.Sequential(*layers).to("xla")
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def step(self) -> None:
        x, y = torch.randn(BATCH, WIDTH).to("xla"), torch.randint(0, 10, (BATCH,)).to("xla")
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()
        xr.sync()

    def gradients(self) -> int:
        """Bytes of the gradients."""
        return sum(p.grad.nbytes for p in self.model.parameters() if p.grad is not None)

    def state(self) -> int:
        """Bytes of parameters, gradients and the optimizer's state on the device."""
        kept = [value for state in self.optimizer.state.values() for value in state.values()]
        return self.gradients() + sum(t.nbytes for t in (*self.model.parameters(), *kept) if t.device.type == "xla")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--warm-up", type=int, default=100)
    args = parser.parse_args()
    torch.set_num_threads(1)
    training = Training()

    at_warm_up = 0
    for number in range(args.steps):
        training.step()
        if number % 50 == 0:
            xr.wait_device_ops()
        if number + 1 == args.warm_up:
            gc.collect()
            at_warm_up = resident()
    xr.wait_device_ops()
    gc.collect()
    grown = resident() - at_warm_up
    print(f"process: {at_warm_up / 1e6:.1f} MB after {args.warm_up} steps, {grown / 1e6:+.2f} MB after {args.steps}")
    print(f"         {grown / at_warm_up:+.2%} (wanted: less than 1 %)")

    program = next(reversed(cache._programs.values()))  # of the last step
    needs = program.compiled.memory_analysis()
    wanted = training.state() + needs.temp_size_in_bytes
    # zero_grad() lets go of the gradients before the barrier
    before = xr.memory_info().bytes_in_use - training.gradients()
    peak = before + needs.output_size_in_bytes - needs.alias_size_in_bytes + needs.temp_size_in_bytes
    print(f"device:  {peak / 1e6:.2f} MB in a step; parameters, gradients, state and XLA's own {wanted / 1e6:.2f} MB")
    print(f"         {peak / wanted:.3f} (wanted: at most 1.1)")

    del training
    xr.sync(wait=True)
    gc.collect()
    print(f"dropped: {xr.memory_info()}")


if __name__ == "__main__":
    main()
