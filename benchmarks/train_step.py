"""A training step of the peers' llama, or MLP, with Adam, and what recording and explaining it costs.

    OMP_NUM_THREADS=1 python benchmarks/train_step.py [--model mlp] [--steps 40] [--log /tmp/run.log]

CPU time on one core (the process pins itself), medians. "record" is forward, backward and optimizer (all threads: the
backward pass has its own), "sync" the barrier on its thread, "step" everything including the device's work, which on a
CPU is CPU time too. Then the same steps,
in turn with and without a recording on (scopes and a StepTrace around each): the paired difference. A recording is
all there is to diagnosis while the program runs: events, the lines of what is new, and the sampler of stacks in long
gaps.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import machine
import torch
from llama import BATCH, LENGTH, VOCABULARY, Llama
from torch import nn
from torch.nn import functional as F

import xlaprof
import xlaprof.runtime as xr

#: torch_xla 2.9's ms, where they were measured
PEER = {"llama": {"step": 115.3, "record": 13.4, "sync": 2.1}, "mlp": {"step": 3.88}}
#: steps of a block, and what a recording may cost
BLOCK = {"llama": (10, 1.01), "mlp": (250, 1.03)}


def llama() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A model, its input and the classes wanted."""
    tokens, targets = (torch.randint(0, VOCABULARY, (BATCH, LENGTH)) for _ in range(2))
    return Llama(), tokens, targets.view(-1)


def mlp() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The MLP 64-128-128-10, and a batch of 32."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    return model, torch.rand(32, 64), torch.randint(0, 10, (32,))


def make_step(make: Callable[[], tuple[nn.Module, torch.Tensor, torch.Tensor]]) -> Callable[..., tuple[float, ...]]:
    """A function that takes one step and returns CPU ms: (record, sync, all)."""
    torch.manual_seed(0)
    made, inputs, targets = make()
    model, inputs, targets = made.to("xla"), inputs.to("xla"), targets.to("xla")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    xr.sync(wait=True)

    def step(number: int) -> tuple[float, ...]:
        start = time.process_time()
        with xlaprof.StepTrace("train", step_num=number):
            with xlaprof.Trace("forward"):
                logits = model(inputs)
                loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets)
            with xlaprof.Trace("backward"):
                optimizer.zero_grad()
                loss.backward()
            with xlaprof.Trace("optimizer"):
                optimizer.step()
            recorded = time.process_time()
            barrier = time.thread_time()  # the device begins meanwhile, on threads of its own
            xr.sync()
            synced = time.thread_time() - barrier
            xr.wait_device_ops()
        return (recorded - start) * 1e3, synced * 1e3, (time.process_time() - start) * 1e3

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=tuple(PEER), default="llama")
    parser.add_argument(
        "--steps", type=int, default=40, help="measured alone; a quarter as many pairs of blocks follow"
    )
    parser.add_argument("--log", type=Path, default=Path(tempfile.gettempdir()) / "xlaprof-train-step.log")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(machine.tell())
    step = make_step({"llama": llama, "mlp": mlp}[args.model])
    first = time.perf_counter()
    step(0)
    print(f"first step {time.perf_counter() - first:.2f} s (wall, one core), second compiles once more")
    for number in range(1, 4):
        step(number)
    rows = [step(number) for number in range(args.steps)]
    print(f"{'CPU ms, median':16}{'ours':>8}{'torch_xla 2.9':>15}")
    for i, name in enumerate(("record", "sync", "step")):
        print(f"{name:16}{statistics.median(row[i] for row in rows):8.2f}{PEER[args.model].get(name, '-'):>15}")

    # Blocks of steps in turn, off and on: the difference of neighbours is the recording's. A block's first two steps
    # are left out: a recording begins by reading the source lines it names.
    block, wanted = BLOCK[args.model]
    ratios = []
    for _ in range(args.steps // 4):
        off = statistics.median([step(number)[2] for number in range(block)][2:])
        with xlaprof.record(args.log):
            on = statistics.median([step(number)[2] for number in range(block)][2:])
        ratios.append(on / off)
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(
        f"recording on / off: {middle:.4f} (median of {len(ratios)} pairs, quartiles {low:.4f} and {high:.4f}; ", end=""
    )
    print(f"wanted: <= {wanted})")


if __name__ == "__main__":
    main()
