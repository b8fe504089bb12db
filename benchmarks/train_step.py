"""A training step of the peers' llama, or MLP, with Adam, and what recording and explaining it costs.

    OMP_NUM_THREADS=1 python benchmarks/train_step.py [--model mlp] [--steps 40] [--pairs 20] [--log /tmp/run.log]

CPU time on one core (the process pins itself), medians. "record" is forward, backward and optimizer (all threads: the
backward pass has its own), "sync" the barrier on its thread, "step" everything including the device's work, which on a
CPU is CPU time too.

Then blocks of the same steps, in turn without and with a recording on (scopes and a StepTrace around each). A recording
is all there is to diagnosis while the program runs: events, the lines of what is new, and the sampler of stacks in long
gaps. Of a block all CPU time counts, of every thread, but for its first steps: a recording begins by reading source
lines, tells its first 50 steps in full and reads what is alive more often than later, some 10 to 20 ms in all. Each
block with a recording is compared with the two around it, so that a machine that gets slower meanwhile changes nothing;
what such a comparison finds of blocks that are all without one is printed too: how far the figure can be trusted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import machine
import torch
from llama import BATCH, LENGTH, VOCABULARY, Llama
from torch import nn
from torch.nn import functional as F

import xlaprof
import xlaprof.runtime as xr

#: torch_xla 2.9's ms, where they were measured
PEER = {"llama": {"step": 115.3, "record": 13.4, "sync": 2.1}, "mlp": {"step": 3.88}}
#: steps before those that count: without a recording, and with one; steps that count, and what a recording may cost
BLOCK = {"llama": (2, 5, 10, 1.01), "mlp": (30, 300, 80, 1.03)}


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


class Block(NamedTuple):
    """CPU us per step: of the process, and of its threads by name."""

    all: float
    threads: dict[str, float]


def block(step: Callable[..., object], before: int, count: int) -> Block:
    for number in range(before):
        step(number)
    threads, start = thread_ns(), time.process_time_ns()
    for number in range(before, before + count):
        step(number)
    took, after = time.process_time_ns() - start, thread_ns()
    return Block(took / count / 1e3, {name: (ns - threads.get(name, 0)) / count / 1e3 for name, ns in after.items()})


def thread_ns() -> dict[str, int]:
    """CPU time that threads had so far, by name; those that Python did not start count as one. Linux only."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found: dict[str, int] = {}
    for task in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            ns = int(task.read_bytes().split()[0])
            name = names.get(int(task.parent.name), "other")
            found[name] = found.get(name, 0) + ns
    return found


def compare(step: Callable[..., object], model: str, pairs: int, log: Path) -> None:
    """Print what recording costs."""
    before, begun, count, wanted = BLOCK[model]
    off, on = [block(step, before, count)], []
    for _ in range(pairs):
        with xlaprof.record(log):
            on.append(block(step, begun, count))
        off.append(block(step, before, count))
    ratios = [2 * one.all / (left.all + right.all) for one, left, right in zip(on, off, off[1:], strict=False)]
    none = [2 * one.all / (left.all + right.all) for one, left, right in zip(off[1:], off, off[2:], strict=False)]
    for name, found, remark in (("on / off", ratios, f"; wanted: <= {wanted}"), ("off / off", none, "")):
        low, middle, high = statistics.quantiles(found, n=4)
        print(f"recording {name}: {middle:.4f} (median of {len(found)}, quartiles {low:.4f} and {high:.4f}{remark})")
    print(f"{'CPU us a step, median':24}{'off':>8}{'on':>8}{'more':>8}")
    for name in sorted({name for one in (*off, *on) for name in one.threads}):
        without, recorded = [statistics.median(one.threads.get(name, 0.0) for one in blocks) for blocks in (off, on)]
        if max(without, recorded) >= 0.5:
            print(f"{name:24}{without:8.1f}{recorded:8.1f}{recorded - without:+8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=tuple(PEER), default="llama")
    parser.add_argument("--steps", type=int, default=40, help="measured alone")
    parser.add_argument("--pairs", type=int, default=20, help="blocks with a recording")
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
    compare(step, args.model, args.pairs, args.log)


if __name__ == "__main__":
    main()
