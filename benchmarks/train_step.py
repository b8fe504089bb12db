"""A training step of the peers' llama with Adam, and what recording it costs.

    OMP_NUM_THREADS=1 python benchmarks/train_step.py [--steps 40] [--log /tmp/run.log]

CPU time on one core (the process pins itself), medians. "record" is forward, backward and optimizer (all threads: the
backward pass has its own), "sync" the barrier on its thread, "step" everything including the device's work, which on a
CPU is CPU time too. Then the same steps,
in turn with and without a recording on (scopes and a StepTrace around each): the paired difference.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from llama import BATCH, LENGTH, VOCABULARY, Llama
from torch.nn import functional as F

import xlaprof
import xlaprof.runtime as xr

PEER = {"step": 115.3, "record": 13.4, "sync": 2.1}


def make_step() -> Callable[[int], tuple[float, float, float]]:
    """A function that takes one step and returns CPU ms: (record, sync, all)."""
    torch.manual_seed(0)
    model = Llama().to("xla")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    tokens, targets = (torch.randint(0, VOCABULARY, (BATCH, LENGTH)).to("xla") for _ in range(2))
    xr.sync(wait=True)

    def step(number: int) -> tuple[float, float, float]:
        start = time.process_time()
        with xlaprof.StepTrace("train", step_num=number):
            with xlaprof.Trace("forward"):
                loss = F.cross_entropy(model(tokens).view(-1, VOCABULARY), targets.view(-1))
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
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--log", type=Path, default=Path(tempfile.gettempdir()) / "xlaprof-train-step.log")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    step = make_step()
    first = time.perf_counter()
    step(0)
    print(f"first step {time.perf_counter() - first:.2f} s (wall, one core), second compiles once more")
    for number in range(1, 4):
        step(number)
    rows = [step(number) for number in range(args.steps)]
    print(f"{'CPU ms, median':16}{'ours':>8}{'torch_xla 2.9':>15}")
    for i, name in enumerate(("record", "sync", "step")):
        print(f"{name:16}{statistics.median(row[i] for row in rows):8.2f}{PEER[name]:15.1f}")

    # Blocks of steps in turn, off and on: the difference of neighbours is the recording's. A block's first two steps
    # are left out: a recording begins by reading the source lines it names.
    ratios = []
    for _ in range(args.steps // 4):
        off = statistics.median([step(number)[2] for number in range(10)][2:])
        with xlaprof.record(args.log):
            on = statistics.median([step(number)[2] for number in range(10)][2:])
        ratios.append(on / off)
    print(f"recording on / off: {statistics.median(ratios):.4f} (median of {len(ratios)} pairs; wanted: <= 1.01)")


if __name__ == "__main__":
    main()
